// Which of torch's softmax attentions a model takes on a GPU: the fastest.
#pragma once

#include <functional>
#include <string_view>

#include "cli/support/stopwatch.hpp"

namespace mhla::cli::bench {

enum class SoftmaxChoice { automatic, flash, cudnn };
std::string_view name(SoftmaxChoice choice);

// From now on, for the whole process: this one where it can run, else what torch takes next. `automatic` changes
// nothing.
void prefer_softmax(SoftmaxChoice choice);

// The one with which `run` is faster, by one run each after another to warm up; on the CPU `automatic`.
SoftmaxChoice fastest_softmax(const Stopwatch& stopwatch, const std::function<void()>& run);

}  // namespace mhla::cli::bench
