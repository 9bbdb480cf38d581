// One file or several, and whether all of the model was in them.
#include "models/lm_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "models/base/weight_files.hpp"
#include "models/base/weights.hpp"
#include "models/lm/transformers_config.hpp"
#include "models/registry.hpp"

namespace mhla::models {
namespace {

// What is missing is in none of the files.
LoadReport load_parts(Lm& model, const std::vector<io::SafeTensors>& files) {
  LoadReport all;
  for (const io::SafeTensors& file : files) {
    const LoadReport part = load_weights(model, file, LoadMode::adapt);
    all.loaded += part.loaded;
    all.adapted.insert(all.adapted.end(), part.adapted.begin(), part.adapted.end());
    if (&file == files.data())
      all.missing = part.missing;
    else
      std::erase_if(all.missing, [&](const std::string& name) { return std::ranges::count(part.missing, name) == 0; });
    all.misshapen.insert(all.misshapen.end(), part.misshapen.begin(), part.misshapen.end());
    for (const std::string& name : part.extra)
      if (!name.ends_with("rotary_emb.inv_freq")) all.extra.push_back(name);
  }
  return all;
}

std::shared_ptr<Lm> model_of(const std::vector<io::SafeTensors>& files, const LmOptions& options) {
  const LmDesign design(options);
  double there = 0.0;
  for (const io::SafeTensors& file : files) there += elements_of(file);
  if (const double least = design.least_elements(); there < least)
    throw Error(fmt::format("such a model has at least {:.4g} elements, but the tensors of the file have {:.4g}", least,
                            there));
  return std::make_shared<Lm>(design);
}

LmOptions stored_options(const io::SafeTensors& file) {
  const io::Json config = stored_json(file, kConfig);
  if (config.is_null())
    throw Error(fmt::format("{}: metadata \"{}\" is missing, which says what model it is", file.source(), kConfig));
  if (const std::string_view task = task_of(config); !task.empty() && task != "language")
    throw Error(fmt::format("{}: it holds a model of the task {}, \"{}\"; a language model is needed", file.source(),
                            task, config["model"].get<std::string>()));
  try {
    return config.get<LmOptions>();
  } catch (const Error& error) {
    throw config_error(file, error);
  }
}

struct LmFiles {
  std::string config;  // the file with the options
  LmOptions options;
  std::vector<io::SafeTensors> weights;
};

LmFiles open_files(const std::filesystem::path& path) {
  const auto config = path / "config.json";
  const bool folder = std::filesystem::is_directory(path);
  if (folder && !std::filesystem::exists(config)) return open_files(path / "model.safetensors");
  LmFiles files;
  for (const auto& file : folder ? weight_files(path) : std::vector{path})
    files.weights.push_back(io::SafeTensors::map(file));
  files.config = folder ? config.string() : path.string();
  files.options =
      folder ? lm_options_of_transformers(read_json_file(config), files.config) : stored_options(files.weights.front());
  return files;
}

}  // namespace

LmOptions stored_lm_options(const std::filesystem::path& path) { return open_files(path).options; }

LoadReport fill_lm(Lm& model, const std::filesystem::path& path) { return load_parts(model, open_files(path).weights); }

std::shared_ptr<Lm> load_lm(const std::filesystem::path& path, const at::Device& device, const std::string& beyond) {
  LmFiles files = open_files(path);
  if (!beyond.empty()) files.options.beyond = beyond;
  std::shared_ptr<Lm> model;
  try {
    model = model_of(files.weights, files.options);
  } catch (const Error& error) {
    throw Error(fmt::format("{}: {}", files.config, error.what()));
  }
  const LoadReport report = load_parts(*model, files.weights);
  if (!report.missing.empty() || !report.extra.empty() || !report.misshapen.empty())
    throw Error(fmt::format("{}: the tensors do not fit the model\n{}", path.string(), report.text()));
  model->to(device);
  model->eval();
  return model;
}

}  // namespace mhla::models
