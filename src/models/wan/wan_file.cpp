// The video transformer from one file or several.
#include "models/wan/wan_file.hpp"

#include <fmt/format.h>

#include <set>

#include "models/base/weight_files.hpp"
#include "models/base/weights.hpp"
#include "models/wan/wan_config.hpp"

namespace mhla::models {
namespace {

namespace fs = std::filesystem;

WanOptions stored_wan_options(const fs::path& path, const WeightFiles& files) {
  const io::SafeTensors& first = files.files().front();
  const io::Json own = stored_json(first, kConfig);
  try {
    if (!own.is_null()) return own.get<WanOptions>();
  } catch (const Error& error) {
    throw config_error(first, error);
  }
  const fs::path config = (fs::is_directory(path) ? path : path.parent_path()) / "config.json";
  Shapes shapes;
  for (const io::SafeTensors& file : files.files()) shapes.merge(shapes_of(file));
  try {
    return wan_options_of(shapes, fs::exists(config) ? read_json_file(config) : io::Json());
  } catch (const Error& error) {
    throw Error(fmt::format("{}: {}", path.string(), error.what()));
  }
}

void refuse_left_over(const WeightFiles& files, const std::set<const io::SafeTensor*>& used) {
  for (const io::SafeTensors& file : files.files())
    for (const auto& [name, tensor] : file.tensors())
      if (!used.contains(&tensor))
        throw Error(fmt::format("{}: tensor \"{}\" is none of this video transformer", file.source(), name));
}

}  // namespace

std::shared_ptr<Wan> load_wan(const fs::path& path, at::Device device, at::ScalarType type) {
  const WeightFiles files(path, "diffusion_pytorch_model");
  const WanDesign design(stored_wan_options(path, files));
  double there = 0.0;
  for (const io::SafeTensors& file : files.files()) there += elements_of(file);
  if (there < design.least_elements())
    throw Error(fmt::format("{}: such a model has {:.4g} elements, but the tensors have {:.4g}", path.string(),
                            design.least_elements(), there));
  auto model = std::make_shared<Wan>(design);
  model->to(type);
  model->eval();
  std::set<const io::SafeTensor*> used;
  const torch::NoGradGuard no_gradient;
  for (const auto& [name, target] : named_tensors(*model)) {
    const auto names = names_of(name, wan_weight_names());
    at::Tensor(target).copy_(files.tensor(names, target.sizes()));
    used.insert(files.find(names));
  }
  refuse_left_over(files, used);
  model->to(device);
  return model;
}

}  // namespace mhla::models
