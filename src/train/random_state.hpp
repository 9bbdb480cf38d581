// The state of torch's random number generators, of every rank.
#pragma once

#include "train/communicator.hpp"
#include "train/parameters.hpp"

namespace mhla::train {

// "cpu" and, where the model is on a GPU, "cuda": uint8 [ranks, bytes], the same on every rank.
NamedTensors random_state(at::Device device, Communicator& communicator);

void restore_random_state(const NamedTensors& state, at::Device device, const Communicator& communicator);

}  // namespace mhla::train
