// Generators in and out of tensors.
#include "train/random_state.hpp"

namespace mhla::train {
namespace {

std::vector<std::pair<std::string, at::Generator>> generators(at::Device device) {
  std::vector<std::pair<std::string, at::Generator>> all{{"cpu", at::globalContext().defaultGenerator(at::kCPU)}};
  if (!device.is_cpu()) all.emplace_back("cuda", at::globalContext().defaultGenerator(device));
  return all;
}

}  // namespace

NamedTensors random_state(at::Device device, Communicator& communicator) {
  NamedTensors state;
  for (auto& [name, generator] : generators(device)) {
    const std::scoped_lock lock(generator.mutex());
    const at::Tensor own = generator.get_state();
    const at::Tensor all = at::zeros({communicator.size(), own.numel()}, at::kByte);
    all[communicator.rank()].copy_(own);
    communicator.all_reduce(all);
    state.emplace(name, all);
  }
  return state;
}

void restore_random_state(const NamedTensors& state, at::Device device, const Communicator& communicator) {
  for (auto& [name, generator] : generators(device)) {
    const std::scoped_lock lock(generator.mutex());
    generator.set_state(state.at(name)[communicator.rank()].clone());  // reads its storage from the start
  }
}

}  // namespace mhla::train
