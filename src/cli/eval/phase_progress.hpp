// One progress line after the other, for work in phases.
#pragma once

#include <optional>
#include <string>

#include "cli/support/progress.hpp"

namespace mhla::cli {

class PhaseProgress {
 public:
  void operator()(const std::string& phase, double done, double total) {
    if (phase != phase_) progress_.emplace(phase_ = phase, total);
    progress_->advance(done);
  }

 private:
  std::string phase_;
  std::optional<Progress> progress_;
};

}  // namespace mhla::cli
