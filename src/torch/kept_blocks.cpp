// torch.classes.mhla.KeptBlocks: which blocks a decoding state in tensors keeps and what they weigh
// (core/beyond_trained.hpp), for Python.
#include <torch/custom_class.h>

#include <algorithm>
#include <string>

#include "core/decode.hpp"
#include "torch/tensors.hpp"

namespace mhla::dispatch {
namespace {

class KeptBlocksHolder : public torch::CustomClassHolder {
 public:
  KeptBlocksHolder(std::int64_t trained, std::int64_t block_size, std::int64_t max_tokens, const std::string& beyond) {
    DecodeConfig config;
    config.block_size = block_size;
    config.mixing_blocks = trained;
    config.max_tokens = max_tokens;
    config.beyond = parse_beyond_trained(beyond);
    config.key_dim = config.value_dim = 1;
    validate(config);
    kept_ = kept_blocks(config);
    most_tokens_ = mhla::most_tokens(config);
  }

  std::int64_t slots() const { return kept_.slots; }
  bool folds() const { return kept_.folds; }
  std::int64_t most_tokens() const { return most_tokens_; }
  std::int64_t first(std::int64_t block) const { return kept_.first(checked(block, "block")); }
  std::int64_t history(std::int64_t block) const { return kept_.history(checked(block, "block")); }

  // Blocks [begin, end) join the folded sum when `complete` blocks from `block` on are complete.
  std::tuple<std::int64_t, std::int64_t> leaving(std::int64_t block, std::int64_t complete) const {
    checked(block, "block");
    if (!kept_.folds || checked(complete, "complete") == 0) return {0, 0};
    const auto from_zero = [](std::int64_t b) { return std::max<std::int64_t>(0, b); };
    return {from_zero(kept_.leaving(block)), from_zero(kept_.leaving(block + complete - 1) + 1)};
  }

  // Matrices of a call of `own` blocks from `block` on; see mixing_from(). `mixing` is on the CPU.
  at::Tensor mixing_from(const at::Tensor& mixing, std::int64_t block, std::int64_t own) const {
    const std::int64_t n = history(block) + checked(own, "own");
    checked_elements("heads x blocks x blocks", {mixing.dim() == 3 ? mixing.size(0) : 1, n, n});
    std::vector<std::int64_t> sizes{n, n};
    if (mixing.dim() == 3) sizes.insert(sizes.begin(), mixing.size(0));
    at::Tensor result = at::empty(sizes, mixing.options());
    const at::Tensor dense = resolved(mixing, "mixing").contiguous();
    const auto fill = [&]<typename T>() {
      const std::span<const T> matrices(static_cast<const T*>(data_of(dense)), static_cast<std::size_t>(dense.numel()));
      const std::vector<T> values =
          mhla::mixing_from(kept_, matrices, mixing.dim() == 3 ? mixing.size(0) : 1, block, own);
      std::copy(values.begin(), values.end(), static_cast<T*>(mutable_data_of(result)));
    };
    mixing.scalar_type() == at::kDouble ? fill.operator()<double>() : fill.operator()<float>();
    return result;
  }

 private:
  static std::int64_t checked(std::int64_t count, const char* argument) {
    require_size(argument, count, 0, kMostTokens);
    return count;
  }

  KeptBlocks kept_;
  std::int64_t most_tokens_ = 0;
};

TORCH_LIBRARY_FRAGMENT(mhla, library) {
  using Text = const std::string&;
  library.class_<KeptBlocksHolder>("KeptBlocks")
      .def(torch::init([](std::int64_t trained, std::int64_t block_size, std::int64_t max_tokens, Text beyond) {
        return with_value_errors(
            [&] { return c10::make_intrusive<KeptBlocksHolder>(trained, block_size, max_tokens, beyond); });
      }))
      .def("slots", &KeptBlocksHolder::slots)
      .def("folds", &KeptBlocksHolder::folds)
      .def("most_tokens", &KeptBlocksHolder::most_tokens)
      .def("first", &KeptBlocksHolder::first)
      .def("history", &KeptBlocksHolder::history)
      .def("leaving", &KeptBlocksHolder::leaving)
      .def("mixing_from", &KeptBlocksHolder::mixing_from);
}

}  // namespace
}  // namespace mhla::dispatch
