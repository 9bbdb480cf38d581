// torch.classes.mhla.State: streaming for Python and TorchScript, around mhla::State. Not differentiable.
#include "mhla/state.hpp"

#include <torch/custom_class.h>

#include <array>
#include <optional>
#include <string>

#include "torch/tensors.hpp"

namespace mhla {
namespace {

using dispatch::with_value_errors;

class StateHolder : public torch::CustomClassHolder {
 public:
  explicit StateHolder(State state) : state_(std::move(state)) {}

  static c10::intrusive_ptr<StateHolder> create(const at::Tensor& mixing, const std::string& dtype, std::int64_t batch,
                                                std::int64_t heads, std::int64_t kv_heads, std::int64_t key_dim,
                                                std::int64_t value_dim, std::int64_t block_size,
                                                const std::string& feature_map, const std::string& normalizer,
                                                double scale, double eps, double feature_eps,
                                                const std::string& beyond) {
    dispatch::check_matrix(mixing, "mixing", heads);
    dispatch::check_floating(mixing, "mixing");
    const StateConfig config{.dtype = parse_dtype(dtype),
                             .batch = batch,
                             .heads = heads,
                             .kv_heads = kv_heads,
                             .key_dim = key_dim,
                             .value_dim = value_dim,
                             .block_size = block_size,
                             .mixing_blocks = mixing.size(-1),
                             .mixing_per_head = mixing.dim() == 3,
                             .options = {.feature_map = parse_feature_map(feature_map),
                                         .normalizer = parse_normalizer(normalizer),
                                         .masking = Masking::token_causal,
                                         .scale = scale,
                                         .eps = eps,
                                         .feature_eps = feature_eps},
                             .beyond = parse_beyond_trained(beyond)};
    const at::Tensor accumulated = dispatch::resolved(mixing, "mixing")
                                       .detach()
                                       .to(at::kCPU, dispatch::scalar_type(accumulation_type(config.dtype)))
                                       .contiguous();
    return c10::make_intrusive<StateHolder>(State(config, dispatch::data_of(accumulated)));
  }

  // [batch, tokens, heads, width] tensors.
  at::Tensor prefill(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
    dispatch::check_tokens(q, "q");
    const StateConfig& config = state_.config();
    const auto [q_read, k_read, v_read] = read(q, k, v, q.size(1));
    at::Tensor o = at::empty({config.batch, q.size(1), config.heads, config.value_dim}, q_read.options());
    const Parallel parallel = dispatch::torch_parallel();
    state_.prefill(q.size(1), dispatch::const_view(q_read), dispatch::const_view(k_read), dispatch::const_view(v_read),
                   dispatch::mutable_view(o), &parallel);
    return o;
  }

  // One token: [batch, heads, width] tensors.
  at::Tensor step(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
    const StateConfig& config = state_.config();
    const auto [q_read, k_read, v_read] = read(q, k, v, {});
    at::Tensor o = at::empty({config.batch, config.heads, config.value_dim}, q_read.options());
    const auto view = [](const at::Tensor& x, auto data) {
      return BasicTensor<decltype(data)>{data, x.stride(0), 0, x.stride(1)};
    };
    const Parallel parallel = dispatch::torch_parallel();
    state_.step(view(q_read, dispatch::data_of(q_read)), view(k_read, dispatch::data_of(k_read)),
                view(v_read, dispatch::data_of(v_read)), view(o, dispatch::mutable_data_of(o)), &parallel);
    return o;
  }

  c10::intrusive_ptr<StateHolder> fork() const { return c10::make_intrusive<StateHolder>(state_.fork()); }

  at::Tensor serialize() const {
    const std::vector<std::byte> bytes = state_.serialize();
    at::Tensor tensor = at::empty({static_cast<std::int64_t>(bytes.size())}, at::kByte);
    std::copy(bytes.begin(), bytes.end(), static_cast<std::byte*>(dispatch::mutable_data_of(tensor)));
    return tensor;
  }

  static c10::intrusive_ptr<StateHolder> restore(const at::Tensor& bytes) {
    if (bytes.scalar_type() != at::kByte || bytes.dim() != 1) {
      dispatch::refuse("bytes is a ", bytes.scalar_type(), " tensor with ", bytes.dim(),
                       " axes; it must be uint8 with 1");
    }
    const at::Tensor dense = dispatch::resolved(bytes, "bytes").to(at::kCPU).contiguous();
    return c10::make_intrusive<StateHolder>(
        State::restore({static_cast<const std::byte*>(dispatch::data_of(dense)), dense.nbytes()}));
  }

  std::int64_t tokens() const { return state_.tokens(); }
  std::int64_t bytes() const { return static_cast<std::int64_t>(state_.bytes()); }

 private:
  // q, k and v of `tokens` tokens, or of one without an axis for it: checked, with values to read.
  std::array<at::Tensor, 3> read(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                 std::optional<std::int64_t> tokens) const {
    const StateConfig& config = state_.config();
    return {readable(q, "q", tokens, config.heads, config.key_dim),
            readable(k, "k", tokens, config.kv_heads, config.key_dim),
            readable(v, "v", tokens, config.kv_heads, config.value_dim)};
  }

  at::Tensor readable(const at::Tensor& tensor, const char* argument, std::optional<std::int64_t> tokens,
                      std::int64_t heads, std::int64_t dim) const {
    const StateConfig& config = state_.config();
    dispatch::check_device(tensor, argument, at::kCPU);
    at::Tensor values = dispatch::resolved(tensor, argument);
    if (tokens) {
      dispatch::check_tokens(values, argument);
      dispatch::check_shape(values, argument, at::IntArrayRef({config.batch, *tokens, heads, dim}));
    } else {
      dispatch::check_tokens(values, argument, 3, "[batch, heads, width]");
      dispatch::check_shape(values, argument, at::IntArrayRef({config.batch, heads, dim}));
    }
    dispatch::check_dtype(values, argument, dispatch::scalar_type(config.dtype), "that of the state, ");
    return values;
  }

  State state_;
};

}  // namespace

TORCH_LIBRARY_FRAGMENT(mhla, library) {
  using Holder = c10::intrusive_ptr<StateHolder>;
  using Tokens = const at::Tensor&;
  using Text = const std::string&;
  using torch::arg;
  library.class_<StateHolder>("State")
      .def(torch::init([](Tokens mixing, Text dtype, std::int64_t batch, std::int64_t heads, std::int64_t kv_heads,
                          std::int64_t key_dim, std::int64_t value_dim, std::int64_t block_size, Text feature_map,
                          Text normalizer, double scale, double eps, double feature_eps, Text beyond) {
             return with_value_errors([&] {
               return StateHolder::create(mixing, dtype, batch, heads, kv_heads, key_dim, value_dim, block_size,
                                          feature_map, normalizer, scale, eps, feature_eps, beyond);
             });
           }),
           "",
           {arg("mixing"), arg("dtype"), arg("batch"), arg("heads"), arg("kv_heads"), arg("key_dim"), arg("value_dim"),
            arg("block_size"), arg("feature_map"), arg("normalizer"), arg("scale"), arg("eps"), arg("feature_eps"),
            arg("beyond")})
      .def("prefill",
           [](const Holder& self, Tokens q, Tokens k, Tokens v) {
             return with_value_errors([&] { return self->prefill(q, k, v); });
           },
           "", {arg("q"), arg("k"), arg("v")})
      .def("step",
           [](const Holder& self, Tokens q, Tokens k, Tokens v) {
             return with_value_errors([&] { return self->step(q, k, v); });
           },
           "", {arg("q"), arg("k"), arg("v")})
      .def("fork", [](const Holder& self) { return with_value_errors([&] { return self->fork(); }); })
      .def("serialize", [](const Holder& self) { return with_value_errors([&] { return self->serialize(); }); })
      .def_static(
          "restore",
          [](const at::Tensor& bytes) { return with_value_errors([&] { return StateHolder::restore(bytes); }); })
      .def("tokens", [](const Holder& self) { return with_value_errors([&] { return self->tokens(); }); })
      .def("bytes", [](const Holder& self) { return with_value_errors([&] { return self->bytes(); }); })
      .def_pickle(
          [](const Holder& self) { return with_value_errors([&] { return self->serialize(); }); },
          [](const at::Tensor& bytes) { return with_value_errors([&] { return StateHolder::restore(bytes); }); });
}

}  // namespace mhla
