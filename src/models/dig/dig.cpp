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

void Dig::through_blocks(nn::GatedStream& tokens, const at::Tensor& condition, nn::Grid grid) {
  Scan now;
  for (std::size_t layer = 0; layer < blocks_.size(); ++layer) {
    tokens = nn::GatedStream(rescanned(tokens.value(), grid, now, scans_[layer]));
    now = scans_[layer];
    through_block(layer, tokens, condition, now.seen(grid));
  }
  tokens = nn::GatedStream(rescanned(tokens.value(), grid, now, {}));
}

}  // namespace mhla::models
