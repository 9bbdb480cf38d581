// Videos piece by piece, in tiles or whole.
#include "models/wan_vae/wan_vae.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "mhla/types.hpp"
#include "models/wan_vae/tiles.hpp"

namespace mhla::models {
namespace {

using wan_vae::Tile;

at::Tensor seen_by(const at::Tensor& x, const Tile& tile, std::int64_t unit) {
  return x.slice(3, tile.rows.seen_begin * unit, tile.rows.seen_end * unit)
      .slice(4, tile.columns.seen_begin * unit, tile.columns.seen_end * unit);
}

// Where a tile's result belongs, and what of the result belongs there.
void put(at::Tensor& whole, const at::Tensor& part, const Tile& tile, std::int64_t unit) {
  const auto& [rows, columns] = tile;
  whole.slice(3, rows.begin * unit, rows.end * unit)
      .slice(4, columns.begin * unit, columns.end * unit)
      .copy_(part.slice(3, (rows.begin - rows.seen_begin) * unit, (rows.end - rows.seen_begin) * unit)
                 .slice(4, (columns.begin - columns.seen_begin) * unit, (columns.end - columns.seen_begin) * unit));
}

void check_video(const char* name, const at::Tensor& x, std::int64_t channels, std::int64_t unit) {
  if (x.dim() != 5 || x.size(1) != channels || x.numel() == 0 || x.size(3) % unit != 0 || x.size(4) % unit != 0)
    throw Error(fmt::format("{} have shape {}; it must be [batch, {}, frames, height, width]{}", name,
                            c10::str(x.sizes()), channels,
                            unit > 1 ? fmt::format(", height and width multiples of {}", unit) : ""));
}

// `single`: 1 at the start of a video, whose first frame has a latent of its own.
void check_frames(std::int64_t count, std::int64_t single, std::int64_t unit) {
  if (count < single || (count - single) % unit != 0)
    throw Error(fmt::format("{} frames of a video are given; the number must be {}a multiple of {}", count,
                            single > 0 ? "one more than " : "", unit));
}

void check_tile(std::int64_t tile) {
  if (tile < 0) throw Error(fmt::format("tile is {}; it must be a number of latents, or 0 for whole frames", tile));
}

// The large part of a coder, tile by tile. Positions of x and of the result span `from` and `to` units of a tile.
template <typename Large>
at::Tensor in_tiles(const at::Tensor& x, const std::vector<Tile>& tiles, std::int64_t from, std::int64_t to,
                    std::vector<wan_vae::FrameCache>& caches, const Large& large) {
  caches.resize(tiles.size());
  for (auto& cache : caches) cache.begin_piece();
  if (tiles.size() == 1) return large(x, caches.front());
  at::Tensor whole;
  for (std::size_t i = 0; i < tiles.size(); ++i) {
    const at::Tensor part = large(seen_by(x, tiles[i], from), caches[i]);
    if (!whole.defined())
      whole = at::empty({part.size(0), part.size(1), part.size(2), x.size(3) / from * to, x.size(4) / from * to},
                        part.options());
    put(whole, part, tiles[i], to);
  }
  return whole;
}

}  // namespace

WanVae::WanVae(const WanVaeOptions& given)
    : options((check_wan_vae_options(given), given)), encoder_(register_module("encoder", wan_vae::Encoder(options))),
      decoder_(register_module("decoder", wan_vae::Decoder(options))),
      conv1_(register_module(
          "conv1", wan_vae::CausalConvolution(2 * options.latent_channels, 2 * options.latent_channels, 1, 1))),
      conv2_(register_module("conv2",
                             wan_vae::CausalConvolution(options.latent_channels, options.latent_channels, 1, 1))) {
  name_layers();
}

at::Tensor WanVae::per_channel(const std::vector<double>& values, const at::Tensor& latents) {
  return torch::tensor(values, at::kDouble).view({1, -1, 1, 1, 1}).to(latents.options());
}

at::Tensor WanVae::encode_next(const at::Tensor& frames, WanVaeStream& stream) {
  const std::int64_t unit = options.pixels();
  check_video("frames", frames, 3, unit);
  check_tile(stream.tile);
  stream.small_.begin_piece();
  check_frames(frames.size(2), stream.small_.first_piece() ? 1 : 0, options.frames());
  const std::int64_t height = frames.size(3) / unit, width = frames.size(4) / unit;
  const std::int64_t side = stream.tile > 0 ? stream.tile : std::max(height, width);
  const at::Tensor features =
      in_tiles(frames, wan_vae::tiles_of(height, width, side, encoder_->reach / unit), unit, 1, stream.large_,
               [&](const at::Tensor& part, wan_vae::FrameCache& cache) { return encoder_->large(part, cache); });
  const at::Tensor moments = conv1_->forward(encoder_->small(features, stream.small_), stream.small_);
  return moments.slice(1, 0, options.latent_channels);
}

at::Tensor WanVae::decode_next(const at::Tensor& latents, WanVaeStream& stream) {
  check_video("latents", latents, options.latent_channels, 1);
  check_tile(stream.tile);
  stream.small_.begin_piece();
  const at::Tensor features = decoder_->small(conv2_->forward(latents, stream.small_), stream.small_);
  const std::int64_t height = latents.size(3), width = latents.size(4);
  const std::int64_t side = stream.tile > 0 ? stream.tile : std::max(height, width);
  return in_tiles(features, wan_vae::tiles_of(height, width, side, decoder_->reach), 1, options.pixels(), stream.large_,
                  [&](const at::Tensor& part, wan_vae::FrameCache& cache) { return decoder_->large(part, cache); });
}

at::Tensor WanVae::encode(const at::Tensor& video, std::int64_t tile) {
  check_video("frames", video, 3, options.pixels());
  check_frames(video.size(2), 1, options.frames());
  WanVaeStream stream(tile);
  std::vector<at::Tensor> latents;
  for (std::int64_t begin = 0; begin < video.size(2);) {
    const std::int64_t count = begin == 0 ? 1 : options.frames();
    latents.push_back(encode_next(video.slice(2, begin, begin + count), stream));
    begin += count;
  }
  return at::cat(latents, 2);
}

at::Tensor WanVae::decode(const at::Tensor& latents, std::int64_t tile) {
  check_video("latents", latents, options.latent_channels, 1);
  WanVaeStream stream(tile);
  std::vector<at::Tensor> frames;
  frames.reserve(static_cast<std::size_t>(latents.size(2)));
  for (std::int64_t i = 0; i < latents.size(2); ++i) frames.push_back(decode_next(latents.slice(2, i, i + 1), stream));
  return at::cat(frames, 2);
}

// The decoder's layers have one number in Wan's names, level and place in diffusers'.
void WanVae::name_layers() {
  names_ = {{".norm1.", ".residual.0."},
            {".conv1.", ".residual.2."},
            {".norm2.", ".residual.3."},
            {".conv2.", ".residual.6."},
            {".conv_shortcut.", ".shortcut."},
            {".mid_block.resnets.0.", ".middle.0."},
            {".mid_block.attentions.0.", ".middle.1."},
            {".mid_block.resnets.1.", ".middle.2."},
            {".norm_out.", ".head.0."},
            {".conv_out.", ".head.2."},
            {"encoder.conv_in.", "encoder.conv1."},
            {"decoder.conv_in.", "decoder.conv1."},
            {"encoder.down_blocks.", "encoder.downsamples."},
            {"quant_conv.", "conv1."},
            {"post_quant_conv.", "conv2."}};
  std::size_t place = 0;
  const auto add = [&](const std::string& name) {
    names_.emplace_back("decoder.up_blocks." + name, fmt::format("decoder.upsamples.{}.", place++));
  };
  for (std::size_t level = 0; level < options.multipliers.size(); ++level) {
    for (std::int64_t i = 0; i <= options.residuals; ++i) add(fmt::format("{}.resnets.{}.", level, i));
    if (level < options.halves_time.size()) add(fmt::format("{}.upsamplers.0.", level));
  }
  for (const auto& [diffusers, wan] : names_) same_layers_.push_back({diffusers, wan});
}

}  // namespace mhla::models
