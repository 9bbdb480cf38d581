// What a benchmark of models runs: a model, random inputs for one batch, and the loss of its training.
#pragma once

#include <torch/torch.h>

#include <memory>
#include <string>

#include "models/base/model.hpp"

namespace mhla::cli::bench {

struct WorkloadOptions {
  std::string model, preset = "paper", attention = "mhla";
  std::int64_t size = 256;  // side of the images in pixels
  std::int64_t patch = 0;   // 0: the usual one
  std::int64_t blocks = 4;  // per axis
  bool local = true;        // with a convolution on v (LePE), where the model's family has it by default
  bool recompute = false;
  bool tiny = false;  // few channels and layers
};

// Whether a model draws pictures. Such a model works on latents: 4 channels, an eighth of the image's side.
bool is_generator(const std::string& model);

// Side of a patch in pixels of the image.
std::int64_t patch_pixels(const WorkloadOptions& options);

class Workload {
 public:
  explicit Workload(WorkloadOptions options) : options(std::move(options)) {}
  virtual ~Workload() = default;

  virtual models::Model& model() = 0;
  virtual at::Tensor forward(const at::Tensor& x) = 0;    // x: `input`, or the first of its batch
  virtual at::Tensor loss(const at::Tensor& output) = 0;  // of the whole batch
  virtual std::int64_t tokens() = 0;                      // N, of the first layer
  virtual at::Tensor first_mixing() = 0;                  // of the first layer; undefined where it has none

  const WorkloadOptions options;
  at::Tensor input;  // f32
};

std::unique_ptr<Workload> make_workload(const WorkloadOptions& options, std::int64_t batch, at::Device device);

}  // namespace mhla::cli::bench
