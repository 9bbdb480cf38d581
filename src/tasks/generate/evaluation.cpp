// Pictures from a generator or from files, real ones beside them, and the numbers that compare the two.
#include "tasks/generate/evaluation.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>
#include <memory>

#include "models/generator_file.hpp"
#include "report/text.hpp"
#include "tasks/generate/feature_set.hpp"
#include "tasks/generate/frechet_distance.hpp"
#include "tasks/generate/picture_set.hpp"
#include "tasks/generate/pictures.hpp"
#include "tasks/usage_error.hpp"

namespace mhla::tasks {
namespace {

constexpr std::int64_t kDrawnTogether = 256;         // pictures held in memory before they are looked at
constexpr std::int64_t kExamples = 8, kColumns = 4;  // of each class, in a grid
constexpr std::int64_t kDenoisedPictures = 2048;     // at most

// How generators see pictures: values from -1 to 1.
PictureView plain_view(const std::vector<std::int64_t>& size) {
  return {size, {{0.5F, 0.5F, 0.5F}, {0.5F, 0.5F, 0.5F}}};
}

io::Image image_of(const at::Tensor& pixels) {  // uint8 [H, W, 3]
  const auto* const first = pixels.const_data_ptr<std::uint8_t>();
  return {pixels.size(0), pixels.size(1), std::vector(first, first + pixels.numel())};
}

std::vector<std::string> named_classes(const std::vector<std::string>& classes, const std::string& path) {
  if (classes.empty()) throw Error(fmt::format("{}: it does not name its classes, so they cannot be matched", path));
  return classes;
}

// A split of real pictures, or pictures already made.
struct RealPictures {
  std::string name;
  std::shared_ptr<const data::ImageSource> source;
  Choice choice;

  RealPictures(const std::string& path, const std::string& split, const std::vector<std::string>& classes,
               std::int64_t most)
      : name(split.empty() ? path : fmt::format("{}, {}", path, split)),
        source(data::open_image_source(path, split, classes)), choice(equal_choice(*source, most, name)) {}

  PictureOf picture() const {
    return [this](std::int64_t i) { return source->load(choice.pictures[static_cast<std::size_t>(i)]); };
  }
  std::int64_t size() const { return std::ssize(choice.pictures); }

  io::Image examples(std::int64_t label, const std::vector<std::int64_t>& size) const {
    const std::int64_t begin = label * choice.per_class, end = begin + std::min(choice.per_class, kExamples);
    return grid_of(tasks::pixels_of(read_pictures(picture(), begin, end, plain_view(size))), kColumns);
  }
};

// A generator whose classes are those of the classifier, perhaps in another order.
class Drawer {
 public:
  Drawer(const GenerateEvaluationOptions& options, const std::vector<std::string>& classes, at::Device device)
      : loaded_(models::load_generator(options.model, device)),
        process_(diffusion::make_process(loaded_.facts.schedule, loaded_.facts.steps)) {
    set_.count = options.count > 0 ? options.count : GenerateEvaluationOptions::kDefaultCount;
    if (loaded_.facts.space != "pixels" || loaded_.model->options.channels != 3)
      throw Error(fmt::format("{}: it draws {} of {} channels, not pictures; decoded ones can be given by --images",
                              options.model, loaded_.facts.space, loaded_.model->options.channels));
    const std::vector<std::string> names = named_classes(loaded_.facts.classes, options.model);
    for (const std::string& name : classes) {
      const auto place = std::ranges::find(names, name);
      if (place == names.end() || names.size() != classes.size())
        throw Error(fmt::format("{}: it draws {}, but the classifier {} knows {}", options.model,
                                fmt::join(names, ", "), options.classifier, fmt::join(classes, ", ")));
      set_.classes.push_back(place - names.begin());
    }
    request_.sampler = options.sampler.empty() ? usual_sampler(*process_) : parse_sampler(options.sampler);
    request_.steps = options.steps;
    request_.guidance = options.guidance;
    request_.seed = options.seed;
    request_.batch = options.batch;
    check(request_, *loaded_.model, *process_);
  }

  std::int64_t pictures() const { return set_.size(); }
  std::string description(const std::string& model) const {
    return fmt::format("{}, {}, {} steps, guidance {}, seed {}", model, name_of(request_.sampler), request_.steps,
                       request_.guidance.scale, request_.seed);
  }

  // The pictures that `mhla sample` draws with these options. `examples` gets a grid of each class.
  FeatureSet draw(models::LoadedClassifier& classifier, const Phase& phase, std::vector<io::Image>& examples) {
    std::vector<std::vector<at::Tensor>> shown(set_.classes.size());
    const auto watch = [&](const Drawing& drawing) {
      phase("drawing", 1.0 / static_cast<double>(drawing.steps), static_cast<double>(pictures()));
    };
    std::vector<FeatureSet> parts;
    for (std::int64_t begin = 0; begin < pictures(); begin += kDrawnTogether) {
      const std::int64_t end = std::min(begin + kDrawnTogether, pictures());
      set_.ask_for(request_, begin, end, loaded_.model->options.classes);
      const at::Tensor drawn = sample(*loaded_.model, *process_, request_, watch);
      if (!drawn.isfinite().all().item<bool>())
        throw Error("drawn pictures are not finite; the generator's weights are too large or damaged");
      const at::Tensor pixels = tasks::pixels_of(drawn);
      std::vector<std::int64_t> labels;
      for (std::int64_t i = begin; i < end; ++i) {
        labels.push_back(i / set_.count);
        auto& of_class = shown[static_cast<std::size_t>(labels.back())];
        if (std::ssize(of_class) < kExamples) of_class.push_back(pixels[i - begin]);
      }
      const auto picture = [&](std::int64_t i) { return image_of(pixels[i]); };
      parts.push_back(feature_set(classifier, picture, labels, request_.batch));
    }
    for (const auto& of_class : shown) examples.push_back(grid_of(at::stack(of_class), kColumns));
    return joined(parts);
  }

  DenoisingError denoising(const RealPictures& real, const Phase& phase) {
    const std::int64_t count = std::min(real.size(), kDenoisedPictures);
    const auto place = [&](std::int64_t i) { return i * real.size() / count; };
    const PictureOf picture = [&](std::int64_t i) { return real.picture()(place(i)); };
    const PictureView view = plain_view(loaded_.model->options.size);
    const at::Device device = loaded_.model->parameters().front().device();
    DenoisingError error;
    for (std::int64_t begin = 0; begin < count; begin += request_.batch) {
      const std::int64_t end = std::min(begin + request_.batch, count);
      std::vector<std::int64_t> labels;
      for (std::int64_t i = begin; i < end; ++i)
        labels.push_back(
            set_.classes[static_cast<std::size_t>(real.choice.labels[static_cast<std::size_t>(place(i))])]);
      error += denoising_error(*loaded_.model, *process_, read_pictures(picture, begin, end, view).to(device),
                               torch::tensor(labels, at::kLong).to(device), request_.seed, begin);
      phase("denoising real pictures", static_cast<double>(end - begin), static_cast<double>(count));
    }
    return error;
  }

 private:
  models::LoadedGenerator loaded_;
  std::shared_ptr<const diffusion::Process> process_;
  SampleRequest request_;
  PictureSet set_;  // classes in the order of the classifier
};

FeatureSet features_of(const RealPictures& pictures, models::LoadedClassifier& classifier, std::int64_t batch,
                       const std::string& what, const Phase& phase) {
  return feature_set(classifier, pictures.picture(), pictures.choice.labels, batch, [&](std::int64_t done) {
    phase(what, static_cast<double>(done), static_cast<double>(pictures.size()));
  });
}

// A split to compare `split` with: training pictures with held-out ones. Empty where there is none.
std::string other_split(const GenerateEvaluationOptions& options) {
  const std::vector<std::string> splits = data::image_splits(options.data);
  for (const char* other : options.split == "train" ? std::array{"val", "test"} : std::array{"train", ""})
    if (!options.split.empty() && std::ranges::find(splits, other) != splits.end()) return other;
  return "";
}

PictureScores scores(const std::string& name, const FeatureSet& set, const FeatureSet& real, std::int64_t classes) {
  return {name,
          set.size(),
          frechet_distance(feature_moments(set.features), feature_moments(real.features)),
          precision_recall(real.features, set.features),
          set.consistency(),
          set.consistency_by_class(classes)};
}

void check_numbers(const GenerateEvaluationOptions& options, std::int64_t judged, std::int64_t real) {
  if (judged <= kNeighbours)
    throw UsageError(fmt::format("--count gives {} pictures in all; at least {} are needed", judged, kNeighbours + 1));
  if (real <= kNeighbours)
    throw Error(fmt::format("{}, {}: {} pictures, the same number of each class; at least {} are needed", options.data,
                            options.split, real, kNeighbours + 1));
}

}  // namespace

GenerateEvaluation evaluate_generator(const GenerateEvaluationOptions& options, at::Device device, const Phase& told) {
  const Phase phase = told ? told : [](const std::string&, double, double) {};
  const auto start = std::chrono::steady_clock::now();
  models::LoadedClassifier classifier = models::load_classifier(options.classifier, device);
  GenerateEvaluation evaluation;
  evaluation.classes = named_classes(classifier.facts.classes, options.classifier);
  const auto classes = std::ssize(evaluation.classes);
  constexpr auto kAll = std::numeric_limits<std::int64_t>::max();
  const RealPictures real(options.data, options.split, evaluation.classes, kAll);
  std::optional<Drawer> drawer;
  std::optional<RealPictures> made;
  if (options.images.empty())
    drawer.emplace(options, evaluation.classes, device);
  else
    made.emplace(options.images, "", evaluation.classes, options.count > 0 ? options.count : kAll);
  const std::int64_t pictures = drawer ? drawer->pictures() : made->size();
  check_numbers(options, pictures, real.size());
  std::optional<RealPictures> others;
  if (const std::string split = other_split(options); !split.empty())
    others.emplace(options.data, split, evaluation.classes, pictures / classes);

  const FeatureSet real_set = features_of(real, classifier, options.batch, "looking at real pictures", phase);
  const FeatureSet judged = drawer ? drawer->draw(classifier, phase, evaluation.examples)
                                   : features_of(*made, classifier, options.batch, "looking at pictures", phase);
  for (std::int64_t c = 0; made && c < classes; ++c)
    evaluation.examples.push_back(made->examples(c, classifier.model->options.image_size));
  evaluation.pictures = drawer ? drawer->description(options.model) : options.images;
  evaluation.classifier = options.classifier;
  evaluation.data = real.name;
  evaluation.features = real_set.features.size(1);
  evaluation.real_pictures = real.size();
  evaluation.judged = scores(drawer ? "drawn" : "given", judged, real_set, classes);
  if (others)
    evaluation.baseline = scores(
        "real, " + other_split(options),
        features_of(*others, classifier, options.batch, "looking at other real pictures", phase), real_set, classes);
  else
    evaluation.notes.push_back(fmt::format("{}: no other split to compare with", options.data));
  if (drawer) evaluation.denoising = drawer->denoising(real, phase);
  if (const std::int64_t fewest = std::min(pictures, real.size()); fewest <= evaluation.features)
    evaluation.notes.push_back(fmt::format(
        "{} pictures do not fill {} features: the Frechet distance is too large, and compares only at equal "
        "numbers of pictures",
        report::grouped(static_cast<double>(fewest)), evaluation.features));
  evaluation.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return evaluation;
}

}  // namespace mhla::tasks
