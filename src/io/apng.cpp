// The chunks that make a PNG move.
//
//   acTL                      how many frames, how often
//   fcTL, then fdAT ...       for each frame: size, place and time, then what IDAT would hold
//
// fcTL and fdAT are numbered through.
#include "io/apng.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "io/png_chunks.hpp"
#include "mhla/types.hpp"

namespace mhla::io {
namespace {

using PngBytes = std::vector<std::byte>;

template <typename... Numbers>
PngBytes big_endian_numbers(Numbers... numbers) {
  PngBytes bytes;
  (add_big_endian(bytes, numbers), ...);
  return bytes;
}

PngBytes animation_control(std::size_t frames) {
  constexpr std::uint32_t kForever = 0;
  return big_endian_numbers(static_cast<std::uint32_t>(frames), kForever);
}

PngBytes frame_control(std::uint32_t number, const AnimationFrame& frame) {
  constexpr std::uint32_t kLeft = 0, kTop = 0;
  constexpr std::uint16_t kPerSecond = 1000, kStaysAndReplaces = 0;  // two bytes: disposal and blending
  return big_endian_numbers(number, static_cast<std::uint32_t>(frame.image.width),
                            static_cast<std::uint32_t>(frame.image.height), kLeft, kTop,
                            static_cast<std::uint16_t>(frame.shown.count()), kPerSecond, kStaysAndReplaces);
}

void add_frame(PngBytes& png, const AnimationFrame& frame, std::uint32_t& number) {
  add_chunk(png, "fcTL", frame_control(number++, frame));
  const PngBytes alone = encode_png(frame.image.rgb, frame.image.width, frame.image.height);
  for (const PngChunk& chunk : chunks_of_png(alone)) {
    if (chunk.type != "IDAT") continue;
    PngBytes data = big_endian_numbers(number++);
    data.insert(data.end(), chunk.data.begin(), chunk.data.end());
    add_chunk(png, "fdAT", data);
  }
}

}  // namespace

PngBytes encode_apng(const Image& still, std::span<const AnimationFrame> frames, const PngTexts& texts) {
  if (frames.empty()) throw Error("an animation needs a frame");
  for (const AnimationFrame& frame : frames)
    if (frame.image.width != still.width || frame.image.height != still.height)
      throw Error(fmt::format("a frame has {} x {} pixels; the still picture has {} x {}", frame.image.width,
                              frame.image.height, still.width, still.height));
  const PngBytes alone = encode_png(still.rgb, still.width, still.height, texts);
  PngBytes png(alone.begin(), alone.begin() + kPngSignature);
  std::uint32_t number = 0;
  for (const PngChunk& chunk : chunks_of_png(alone)) {
    if (chunk.type == "IEND")
      for (const AnimationFrame& frame : frames) add_frame(png, frame, number);
    add_chunk(png, chunk.type, chunk.data);
    if (chunk.type == "IHDR") add_chunk(png, "acTL", animation_control(frames.size()));
  }
  return png;
}

std::optional<std::int64_t> frames_of_png(std::span<const std::byte> png) {
  const auto chunks = chunks_of_png(png);
  const auto control = std::ranges::find(chunks, "acTL", &PngChunk::type);
  if (control == chunks.end() || control->data.size() < 4) return std::nullopt;
  return read_big_endian(control->data.first<4>());
}

}  // namespace mhla::io
