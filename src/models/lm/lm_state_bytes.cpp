// Frame, checks and fingerprints of saved states.
#include "models/lm/lm_state_bytes.hpp"

#include <fmt/format.h>

#include <cstring>

#include "io/crc32c.hpp"
#include "models/base/weights.hpp"

namespace mhla::models {
namespace {

constexpr const char* kStateMetadata = "mhla.lm_state";
constexpr std::int64_t kStateFormat = 1;
constexpr std::int64_t kSampled = 64;  // values of a parameter that its fingerprint looks at
constexpr std::int64_t kMostSeen = std::int64_t{1} << 48;

std::string name_in_file(std::size_t layer, const std::string& name) {
  return fmt::format("layers.{}.{}", layer, name);
}

[[noreturn]] void refuse_state(const std::string& reason) { throw Error("saved state: " + reason); }

std::span<const std::byte> bytes_of(const at::Tensor& x) {
  return {static_cast<const std::byte*>(x.const_data_ptr()), x.nbytes()};
}

io::Json facts_of(const io::SafeTensors& file) {
  const io::Json facts = stored_json(file, kStateMetadata);
  if (!facts.is_object() || !facts.contains("format") || facts["format"] != kStateFormat || !facts.contains("model") ||
      !facts["model"].is_string() || !facts.contains("seen"))
    refuse_state(fmt::format("metadata \"{}\" is not that of format {}", kStateMetadata, kStateFormat));
  return facts;
}

std::vector<std::int64_t> seen_of(const io::Json& facts) {
  std::vector<std::int64_t> seen;
  if (!io::read_exactly(facts["seen"], seen) || seen.empty()) refuse_state("\"seen\" is no list of numbers of tokens");
  for (const std::int64_t tokens : seen)
    if (tokens < 0 || tokens > kMostSeen) refuse_state(fmt::format("a row has seen {} tokens", tokens));
  return seen;
}

// As it would be in a state that has seen nothing, but for axis 2 where that grows with the tokens.
void check_like(const std::string& name, const at::Tensor& stored, const at::Tensor& fresh) {
  bool good = stored.dim() == fresh.dim() && stored.scalar_type() == fresh.scalar_type();
  for (std::int64_t axis = 0; good && axis < fresh.dim(); ++axis)
    good = stored.size(axis) == fresh.size(axis) || (axis == 2 && fresh.size(axis) == 0);
  if (!good) refuse_state(fmt::format("tensor \"{}\" has not the shape and type that the model wants", name));
}

}  // namespace

std::string fingerprint(const Lm& model) {
  LmOptions options = model.options;
  options.recompute = options.mixing_frozen = false;
  const std::string text = io::Json(options).dump();
  std::uint32_t sum = io::crc32c(std::as_bytes(std::span(text)));
  std::vector<at::Tensor> samples;
  for (const auto& item : model.named_parameters()) {
    const at::Tensor values = item.value().detach().flatten();
    const std::int64_t step = std::max<std::int64_t>(1, values.numel() / kSampled);
    samples.push_back(values.slice(0, 0, kSampled * step, step).to(at::kFloat));
    sum = io::crc32c(std::as_bytes(std::span(item.key())), sum);
  }
  const at::Tensor all = at::cat(samples).cpu();
  return fmt::format("{:08x}", io::crc32c(bytes_of(all), sum));
}

std::vector<std::byte> save_state(const Lm& model, const LmState& state) {
  NamedTensors held;
  std::map<std::string, io::SafeTensor> entries;
  for (std::size_t layer = 0; layer < state.layers().size(); ++layer)
    for (const auto& [name, tensor] : state.layers()[layer]) {
      const std::string stored = name_in_file(layer, name);
      held[stored] = tensor.detach().cpu().contiguous();
      entries[stored] = io::safe_tensor(held[stored], stored);
    }
  const io::Json facts = {{"format", kStateFormat}, {"model", fingerprint(model)}, {"seen", state.seen()}};
  std::vector<std::byte> bytes = io::encode_safetensors(entries, {{kStateMetadata, facts.dump()}});
  const std::uint32_t sum = io::crc32c(bytes);
  const auto end = std::as_bytes(std::span(&sum, 1));
  bytes.insert(bytes.end(), end.begin(), end.end());
  return bytes;
}

LmState restore_state(const Lm& model, std::span<const std::byte> bytes) {
  std::uint32_t sum = 0;
  if (bytes.size() < sizeof sum) refuse_state("it is cut short");
  const auto framed = bytes.first(bytes.size() - sizeof sum);
  std::memcpy(&sum, bytes.data() + framed.size(), sizeof sum);
  if (sum != io::crc32c(framed)) refuse_state("its checksum is wrong; it is damaged, cut short, or no such state");
  const auto file = io::SafeTensors::parse({framed.begin(), framed.end()}, "saved state");
  const io::Json facts = facts_of(file);
  if (const std::string own = fingerprint(model); facts["model"] != own)
    refuse_state(fmt::format("it is of the model {}; this one is {}", facts["model"].get<std::string>(), own));
  const std::vector<std::int64_t> seen = seen_of(facts);
  return model.state_with(seen, [&](std::size_t layer, const std::string& name, const at::Tensor& fresh) {
    const std::string stored = name_in_file(layer, name);
    at::Tensor tensor = io::to_torch(file, stored);
    check_like(stored, tensor, fresh);
    return tensor.to(fresh.device());
  });
}

}  // namespace mhla::models
