// What runs at a shape: the operator and its peers on the same tokens, each with its arithmetic and its error.
#pragma once

#include <functional>
#include <string>

#include "cli/bench/shapes.hpp"

namespace mhla::cli::bench {

// The tokens of one benchmark, and the results they should give.
struct Setting {
  const Shape& shape;
  Plan plan;
  Tokens tokens;
  torch::Tensor d_o;
  Results truth;
};

Setting prepare(const Shape& shape, bool backward);

struct Candidate {
  std::string impl;
  double flops = 0.0;
  std::function<Results()> run;
  std::function<double(const Results&)> error;
};

// Keeps a reference to the setting.
Candidate candidate(const std::string& impl, const Setting& setting);

}  // namespace mhla::cli::bench
