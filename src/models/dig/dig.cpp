// The blocks of DiG, each on tokens in the order of its scan.
#include "models/dig/dig.hpp"

#include "models/dig/dig_block.hpp"

namespace mhla::models {

Dig::Dig(const DigDesign& design) : DiffusionTransformer(design), scans_(design.scans) {
  for (const DigAttention kind : design.attention)
    add_block(kind == DigAttention::gla ? std::make_shared<DigBlock>(design.width, design.heads)
                                        : std::make_shared<DigBlock>(design.mhla_options()));
  initialise();
}

at::Tensor Dig::through_blocks(at::Tensor tokens, const at::Tensor& condition, nn::Grid grid) {
  Scan now;
  for (std::size_t layer = 0; layer < blocks_.size(); ++layer) {
    tokens = rescanned(tokens, grid, now, scans_[layer]);
    now = scans_[layer];
    tokens = through_block(layer, tokens, condition, now.seen(grid));
  }
  return rescanned(tokens, grid, now, {});
}

}  // namespace mhla::models
