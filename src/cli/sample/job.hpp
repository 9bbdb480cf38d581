// What a command line of `mhla sample` asks for, checked: which pictures of which model, and how they are drawn.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "diffusion/schedule.hpp"
#include "io/json.hpp"
#include "models/generator_file.hpp"
#include "tasks/generate/developer.hpp"
#include "tasks/generate/picture_set.hpp"
#include "tasks/generate/sampling.hpp"

namespace mhla::cli {

struct SampleOptions {
  std::string model, vae, device = "auto", sampler;
  std::vector<std::string> classes = {"all"};
  std::int64_t count = 4, first = 0, steps = 50, batch = 16;
  std::vector<std::int64_t> size;  // in pixels; empty: the model's own
  double cfg_scale = 1.5;
  std::vector<double> cfg_interval = {0.0, 1.0};
  std::uint64_t seed = 0;
  std::string out, separate, npz, animate;
  std::int64_t columns = 0;  // 0: chosen
};

struct SampleJob {
  explicit SampleJob(const SampleOptions& options);  // throws a UsageError

  std::filesystem::path model_file;
  at::Device device;
  models::LoadedGenerator generator;
  std::shared_ptr<const diffusion::Process> process;
  tasks::Developer developer;
  tasks::PictureSet set;
  tasks::SampleRequest request;  // without classes and numbers
  std::int64_t height, width;    // of a picture, in pixels
};

// All that a picture depends on, and the command that draws it again.
io::Json parameters_of(const SampleJob& job, const SampleOptions& options, const tasks::PictureSet& set,
                       const std::string& outputs);

std::string quoted(const std::string& word);  // as a shell needs it

}  // namespace mhla::cli
