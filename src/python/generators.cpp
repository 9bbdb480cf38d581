// torch.classes.mhla.Generator: the generators of the program, for the Python package (mhla.models).
#include <torch/custom_class.h>

#include <tuple>

#include "diffusion/process.hpp"
#include "models/generator_file.hpp"
#include "python/value_errors.hpp"
#include "tasks/generate/picture_set.hpp"
#include "tasks/generate/sampling.hpp"

namespace mhla {
namespace {

class PythonGenerator : public torch::CustomClassHolder {
 public:
  PythonGenerator(const std::string& path, const std::string& device)
      : loaded_(with_value_errors([&] { return models::load_generator(path, at::Device(device)); })),
        process_(diffusion::make_process(loaded_.facts.schedule, loaded_.facts.steps)) {}

  std::string config() const { return loaded_.model->config().dump(); }
  std::vector<std::string> classes() const { return loaded_.facts.classes; }
  std::string space() const { return loaded_.facts.space; }
  double latent_scale() const { return loaded_.facts.latent_scale; }

  at::Tensor forward(const at::Tensor& x, const at::Tensor& t, const at::Tensor& y) {
    return with_value_errors([&] { return loaded_.model->forward(x, t, y); });
  }

  // As `mhla sample` draws them, class after class.
  at::Tensor sample(const std::vector<std::string>& classes, std::int64_t count, std::int64_t first,
                    const std::string& sampler, std::int64_t steps, double cfg_scale,
                    const std::tuple<double, double>& cfg_interval, std::int64_t seed,
                    const std::vector<std::int64_t>& size, std::int64_t batch) {
    return with_value_errors([&] {
      const tasks::PictureSet set{
          .classes = tasks::parse_classes(classes, loaded_, "classes"), .count = count, .first = first};
      tasks::SampleRequest request;
      request.size = size;
      request.sampler = sampler.empty() ? tasks::usual_sampler(*process_) : tasks::parse_sampler(sampler);
      request.steps = steps;
      request.guidance = {.scale = cfg_scale, .from = std::get<0>(cfg_interval), .to = std::get<1>(cfg_interval)};
      request.seed = static_cast<std::uint64_t>(seed);
      request.batch = batch;
      set.ask_for(request, 0, set.size(), loaded_.model->options.classes);
      return tasks::sample(*loaded_.model, *process_, request);
    });
  }

 private:
  models::LoadedGenerator loaded_;
  std::shared_ptr<const diffusion::Process> process_;
};

TORCH_LIBRARY_FRAGMENT(mhla, library) {
  library.class_<PythonGenerator>("Generator")
      .def(torch::init<const std::string&, const std::string&>())
      .def("config", &PythonGenerator::config)
      .def("classes", &PythonGenerator::classes)
      .def("space", &PythonGenerator::space)
      .def("latent_scale", &PythonGenerator::latent_scale)
      .def("forward", &PythonGenerator::forward)
      .def("sample", &PythonGenerator::sample);
}

}  // namespace
}  // namespace mhla
