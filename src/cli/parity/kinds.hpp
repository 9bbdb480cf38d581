// Parity cases: a safetensors file whose metadata `config` (a JSON object) says by its `kind` what to build, with
// tensors `param/<key>`, `in/<name>` and the expected `out/<name>`.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace mhla::cli::parity {

struct Result {
  std::string kind;
  std::string output;
  double relative_rms = 0.0;
  double largest_error = 0.0;
  double tolerance = 0.0;
};

// One result per `out/` tensor. Throws an Error where the file is damaged or its kind unknown.
std::vector<Result> check_case(const std::filesystem::path& path);

std::string known_kinds();  // "causal_op, mixing_init, vit"

}  // namespace mhla::cli::parity
