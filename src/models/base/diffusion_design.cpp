// Checks and choices that diffusion transformers have in common.
#include "models/base/diffusion_design.hpp"

#include <fmt/format.h>

#include <utility>

#include "mhla/types.hpp"

namespace mhla::models {
namespace {

DiffusionSizes chosen(const GeneratorOptions& options, const DiffusionSizes& own) {
  const auto either = [](std::int64_t option, std::int64_t of_the_model) { return option > 0 ? option : of_the_model; };
  return {.width = either(options.width, own.width),
          .depth = either(options.depth, own.depth),
          .heads = either(options.heads, own.heads),
          .patch = either(options.patch, own.patch)};
}

}  // namespace

DiffusionDesign::DiffusionDesign(GeneratorOptions given, const DiffusionSizes& own, const char* own_attention)
    : DiffusionSizes(chosen(given, own)), options(std::move(given)) {
  check_generator_options(options);
  if (options.attention.empty()) options.attention = {own_attention};
  if (width % heads != 0) throw Error(fmt::format("heads is {}; it must be a divisor of width, {}", heads, width));
  if (width % 4 != 0) throw Error(fmt::format("width is {}; it must be a multiple of 4", width));
  for (const std::int64_t side : options.size)
    if (side % patch != 0)
      throw Error(fmt::format("size is [{}, {}]; both must be multiples of the patch, {}", options.size[0],
                              options.size[1], patch));
  grid = {options.size[0] / patch, options.size[1] / patch};
}

Partition DiffusionDesign::partition() const {
  return Partition::grid(std::vector{grid.height, grid.width}, options.blocks);
}

}  // namespace mhla::models
