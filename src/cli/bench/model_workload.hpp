// What a benchmark of models runs: a model, random inputs for one batch, and the loss of its training.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "models/base/model.hpp"

namespace mhla::cli::bench {

struct WorkloadOptions {
  std::string model, preset = "paper", attention = "mhla";
  std::int64_t size = 256;       // side of the images in pixels; of language models tokens
  std::int64_t patch = 0;        // 0: the usual one
  std::int64_t blocks = 4;       // per axis; of language models all
  std::int64_t block_size = 64;  // of language models, in tokens
  bool local = true;             // with a convolution on v (LePE), where the model's family has it by default
  bool recompute = false;
  bool tiny = false;  // few channels and layers
};

// Whether a model draws pictures. Such a model works on latents: 4 channels, an eighth of the image's side.
bool is_generator(const std::string& model);

bool is_language_model(const std::string& model);

// Side of a patch in pixels of the image.
std::int64_t patch_pixels(const WorkloadOptions& options);

// Models that were made, for the next size or pass: making a large one takes longer than timing it.
class Shelf {
 public:
  // The model of that name, in float32 on the device and without gradients; `make` makes it where there is none.
  template <typename Made>
  std::shared_ptr<Made> get(const std::string& name, at::Device device,
                            const std::function<std::shared_ptr<Made>()>& make) {
    std::shared_ptr<models::Model>& place = models_[name];
    if (!place) place = make();
    place->to(device, torch::kFloat);
    place->zero_grad();
    return std::dynamic_pointer_cast<Made>(place);
  }

 private:
  std::map<std::string, std::shared_ptr<models::Model>> models_;
};

class Workload {
 public:
  explicit Workload(WorkloadOptions options) : options(std::move(options)) {}
  virtual ~Workload() = default;

  virtual models::Model& model() = 0;
  virtual at::Tensor forward(const at::Tensor& x) = 0;    // x: `input`, or the first of its batch
  virtual at::Tensor loss(const at::Tensor& output) = 0;  // of the whole batch
  virtual std::int64_t tokens() = 0;                      // N, of the first layer
  virtual at::Tensor first_mixing() = 0;                  // of the first layer; undefined where it has none
  virtual at::Tensor guided(const at::Tensor& x);         // classifier-free guidance: of generators

  // What is enough to see that outputs are right: the first of the batch, or a part of it.
  virtual at::Tensor sample() { return input.slice(0, 0, 1); }

  const WorkloadOptions options;
  at::Tensor input;  // f32, of language models int64
};

std::unique_ptr<Workload> make_workload(const WorkloadOptions& options, std::int64_t batch, at::Device device,
                                        Shelf& shelf);

}  // namespace mhla::cli::bench
