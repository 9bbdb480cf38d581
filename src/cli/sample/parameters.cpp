// The parameters of pictures, for the metadata of their files.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "cli/sample/job.hpp"
#include "mhla/version.hpp"

namespace mhla::cli {
namespace {

// As --class understands it.
std::string class_argument(std::int64_t label, const models::LoadedGenerator& generator) {
  const std::string name = tasks::class_name(label, generator);
  const bool understood =
      name.find(',') == std::string::npos && tasks::parse_classes({name}, generator) == std::vector{label};
  return understood ? name : std::to_string(label);
}

std::string class_arguments(const tasks::PictureSet& set, const models::LoadedGenerator& generator) {
  if (set.classes.size() > 1 && set.classes == tasks::parse_classes({"all"}, generator)) return "all";
  std::vector<std::string> names;
  names.reserve(set.classes.size());
  for (const std::int64_t label : set.classes) names.push_back(class_argument(label, generator));
  return fmt::format("{}", fmt::join(names, ","));
}

std::string command(const SampleJob& job, const SampleOptions& options, const tasks::PictureSet& set,
                    const std::string& outputs) {
  const tasks::SampleRequest& request = job.request;
  std::string line =
      fmt::format("mhla sample --model {} --class {} --count {} --first {}", quoted(job.model_file.string()),
                  quoted(class_arguments(set, job.generator)), set.count, set.first);
  if (!options.vae.empty()) line += fmt::format(" --vae {}", quoted(options.vae));
  if (!options.size.empty()) line += fmt::format(" --size {} {}", job.height, job.width);
  line += fmt::format(" --sampler {} --steps {} --cfg-scale {}", tasks::name_of(request.sampler), request.steps,
                      request.guidance.scale);
  if (request.guidance.from > 0.0 || request.guidance.to < 1.0)
    line += fmt::format(" --cfg-interval {} {}", request.guidance.from, request.guidance.to);
  line += fmt::format(" --seed {} --device {}", request.seed, job.device.is_cpu() ? "cpu" : "cuda");
  if (!job.device.is_cpu()) line += fmt::format(" --batch {}", request.batch);
  return line + outputs;
}

}  // namespace

std::string quoted(const std::string& word) {
  const auto plain = [](unsigned char letter) {
    return std::isalnum(letter) != 0 ||
           std::string_view("_-./,+:@%=").find(static_cast<char>(letter)) != std::string::npos;
  };
  if (!word.empty() && std::ranges::all_of(word, plain)) return word;
  std::string text = "'";
  for (const char letter : word) text += letter == '\'' ? std::string("'\\''") : std::string(1, letter);
  return text + "'";
}

io::Json parameters_of(const SampleJob& job, const SampleOptions& options, const tasks::PictureSet& set,
                       const std::string& outputs) {
  const tasks::SampleRequest& request = job.request;
  std::vector<std::string> names;
  names.reserve(set.classes.size());
  for (const std::int64_t label : set.classes) names.push_back(tasks::class_name(label, job.generator));
  io::Json json = {{"program", fmt::format("mhla {}", version())},
                   {"model", job.model_file.string()},
                   {"classes", names},
                   {"count", set.count},
                   {"first", set.first},
                   {"size", {job.height, job.width}},
                   {"sampler", tasks::name_of(request.sampler)},
                   {"steps", request.steps},
                   {"cfg_scale", request.guidance.scale},
                   {"cfg_interval", {request.guidance.from, request.guidance.to}},
                   {"seed", request.seed},
                   {"device", job.device.is_cpu() ? "cpu" : "cuda"}};
  if (!options.vae.empty()) json["vae"] = options.vae;
  json["command"] = command(job, options, set, outputs);
  return json;
}

}  // namespace mhla::cli
