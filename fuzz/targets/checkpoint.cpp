// Checkpoints of a training run.
#include "train/checkpoint.hpp"

#include "io/file.hpp"
#include "io/safetensors.hpp"
#include "support/target.hpp"

using namespace mhla;

namespace {

fuzz::File& file() {
  static fuzz::File file(".safetensors");
  return file;
}

void judge(std::span<const std::byte> bytes) {
  const auto& path = file().with(bytes);
  fuzz::runs_or_names({file().name()}, [&] {
    const train::Checkpoint checkpoint = train::load_checkpoint(path);
    for (const auto& [name, tensor] : checkpoint.tensors)
      fuzz::expect(tensor.defined() && tensor.device().is_cpu(), "a tensor that is not there");
    train::save_checkpoint(path, checkpoint);
    fuzz::expect(train::load_checkpoint(path).step == checkpoint.step, "another step on the way");
  });
}

}  // namespace

fuzz::Inputs fuzz::seeds() {
  train::Checkpoint checkpoint;
  checkpoint.step = 12;
  checkpoint.best = 0.5;
  checkpoint.settings = {{"lr", 1e-3}, {"epochs", 3}};
  checkpoint.tensors = {{"model/a", torch::ones({2, 3})},
                        {"optimizer/a", torch::zeros({2, 3}, at::kDouble)},
                        {"random/cpu", torch::arange(16, at::kByte)}};
  const fuzz::File made(".made");
  train::save_checkpoint(made.name(), checkpoint);
  return {io::read_file(made.name())};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Bytes bytes = fuzz::copy_of(fuzz::bytes_of(data, size));
  judge(bytes);
  train::seal(bytes);  // and past the checksum
  judge(bytes);
  return 0;
}
