// Pictures drawn by the generator that comes with the program.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "io/image.hpp"

namespace mhla::cli {

struct DrawnClass {
  std::string name;
  io::Image pictures;  // side by side
};

struct DrawnPictures {
  std::string model;    // what drew them; empty: no model was found
  std::string missing;  // why not
  std::vector<DrawnClass> classes;
  io::Image sheet;  // a row for each class
  std::int64_t count = 0, height = 0, width = 0, steps = 0;
  double seconds = 0.0;
};

// `count` pictures of every class. step(share) is called as the work goes on.
DrawnPictures draw_pictures(std::int64_t count, std::int64_t steps, const std::function<void(double)>& step);

}  // namespace mhla::cli
