// Saved states of a language model, also with their checksum put right: what is accepted goes on.
#include <cstring>

#include "io/crc32c.hpp"
#include "models/lm/lm_state_bytes.hpp"
#include "support/target.hpp"

using namespace mhla;

namespace {

models::Lm& model() {
  static models::Lm made = [] {
    torch::manual_seed(1);
    models::LmOptions options;
    options.attention = {"mhla", "softmax", "gla"};
    options.vocabulary = 5;
    options.width = options.mlp_width = 4;
    options.depth = 3;
    options.heads = 1;
    options.blocks = 3;
    options.block_size = 2;
    options.short_convolution = true;
    return models::Lm(options);
  }();
  return made;
}

// The last four bytes are the checksum of all before them.
fuzz::Bytes with_checksum(fuzz::Bytes bytes) {
  if (bytes.size() < sizeof(std::uint32_t)) return bytes;
  const std::size_t end = bytes.size() - sizeof(std::uint32_t);
  const std::uint32_t sum = io::crc32c(std::span(bytes).first(end));
  std::memcpy(bytes.data() + end, &sum, sizeof sum);
  return bytes;
}

void judge(const fuzz::Bytes& bytes) {
  fuzz::runs_or_names({"saved state", "state of layer", "max_tokens", "batch", "blocks"}, [&] {
    models::LmState state = models::restore_state(model(), bytes);
    const std::int64_t rows = state.batch();
    const at::Tensor logits = model().step(state, torch::zeros({rows}, at::kLong));
    fuzz::expect(logits.sizes() == at::IntArrayRef({rows, 5}), "logits of another shape");
  });
}

}  // namespace

fuzz::Inputs fuzz::seeds() {
  Inputs inputs;
  for (const std::int64_t tokens : {1, 3, 6}) {
    models::LmState state = model().new_state(2);
    model().prefill(state, torch::zeros({2, tokens}, at::kLong));
    inputs.push_back(models::save_state(model(), state));
  }
  return inputs;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const fuzz::Bytes bytes = fuzz::copy_of(fuzz::bytes_of(data, size));
  judge(bytes);
  judge(with_checksum(bytes));
  return 0;
}
