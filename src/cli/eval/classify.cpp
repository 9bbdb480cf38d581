// `mhla eval classify`: how well a trained classifier does.
#include "cli/eval/classify.hpp"

#include <fmt/format.h>

#include <chrono>
#include <memory>

#include "cli/classify/model.hpp"
#include "cli/eval/classify_report.hpp"
#include "cli/support/checks.hpp"
#include "cli/support/device.hpp"
#include "cli/support/machine.hpp"
#include "cli/support/output.hpp"
#include "data/image_loader.hpp"
#include "io/file.hpp"
#include "models/attention_statistics.hpp"
#include "models/classifier_file.hpp"
#include "train/autocast.hpp"

namespace mhla::cli {
namespace {

struct EvalClassifyOptions {
  std::string model, data, split = "test", device = "auto", amp = "none", out;
  std::int64_t batch = 256, attention_images = 0;
  int threads = 0, workers = 0;
  Output output;
};

data::ImageLoader open_loader(const EvalClassifyOptions& options, const models::LoadedClassifier& loaded,
                              at::Device device) {
  data::ImageLoaderOptions loading;
  loading.batch = options.batch;
  loading.image_size = loaded.model->options.image_size;
  const models::Preprocessing& pixels = loaded.facts.preprocessing;
  loading.normalization = {pixels.mean, pixels.std};
  loading.crop_fraction = pixels.crop_fraction;
  loading.threads = options.workers;
  loading.pinned = device.is_cuda();
  return {data::open_image_source(options.data, options.split, loaded.facts.classes), loading};
}

// At equal distances in the list.
at::Tensor some_images(data::ImageLoader& loader, std::int64_t count) {
  const std::int64_t every = std::max<std::int64_t>(1, loader.source().size() / count);
  std::vector<at::Tensor> chosen;
  std::int64_t index = 0;
  loader.start(0);
  while (const auto batch = loader.next())
    for (const at::Tensor& image : batch->images.unbind(0))
      if (index++ % every == 0 && static_cast<std::int64_t>(chosen.size()) < count) chosen.push_back(image.clone());
  if (chosen.empty()) throw Error("--attention: none of the images can be read");
  return at::stack(chosen);
}

void run_eval_classify(const EvalClassifyOptions& options) {
  use_threads(options.threads);
  const at::Device device = choose_device(options.device);
  const std::filesystem::path path = classifier_path(options.model);
  models::LoadedClassifier loaded = models::load_classifier(path, device);
  data::ImageLoader loader = open_loader(options, loaded, device);
  for (const std::string& warning : loader.source().warnings()) options.output.text() << "note: " << warning << '\n';
  const auto classes = static_cast<std::int64_t>(loader.source().classes().size());
  if (classes != loaded.model->options.classes)
    throw Error(fmt::format("{}: it knows {} classes and not their names, {} has {}", path.string(),
                            loaded.model->options.classes, options.data, classes));
  const at::NoGradGuard no_grad;
  const auto alone = train::alone();
  ClassifyEvaluation evaluation{path.string(), fmt::format("{}, {}", options.data, options.split),
                                loader.source().classes()};
  const auto start = std::chrono::steady_clock::now();
  {
    const train::Autocast autocast(device, uses_bf16(options.amp, device));
    evaluation.result = tasks::classify_all(*loaded.model, loader, device, *alone);
  }
  evaluation.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (options.attention_images > 0)
    evaluation.attention =
        models::attention_statistics(*loaded.model, some_images(loader, options.attention_images).to(device));

  options.output.text() << evaluation_text(evaluation);
  if (!options.out.empty()) {
    const std::filesystem::path folder = options.out;
    io::write_file(folder / "confusion.png", confusion_png(evaluation));
    io::write_file(folder / "report.html", evaluation_page(evaluation));
    io::write_json((folder / "evaluation.json").string(), evaluation_json(evaluation));
    options.output.text() << fmt::format("report: {}\n", (folder / "report.html").string());
  }
  options.output.json(evaluation_json(evaluation));
}

}  // namespace

void add_eval_classify(CLI::App& eval) {
  auto* command = eval.add_subcommand("classify", "Accuracy and confusion matrix of an image classifier");
  auto options = std::make_shared<EvalClassifyOptions>();
  command->add_option("--model", options->model, "Weights as `mhla train classify` leaves them")
      ->check(existing_file())
      ->type_name("FILE")
      ->default_str("the one file in the folder pretrained");
  command->add_option("--data", options->data, "Images as SPLIT/CLASS/*.jpg|png: a folder or a .tar[.gz]")
      ->required()
      ->check(existing_path())
      ->type_name("PATH");
  command
      ->add_option("--split", options->split, "Which part of the images; \"\" where the class folders lie at the top")
      ->type_name("NAME")
      ->capture_default_str();
  command->add_option("--batch", options->batch, "Images at a time")
      ->check(within(1, 1 << 20))
      ->type_name("N")
      ->capture_default_str();
  add_device_option(*command, options->device);
  add_amp_option(*command, options->amp);
  command
      ->add_option("--attention", options->attention_images,
                   "Also show rank and entropy of the attention, on this many images")
      ->check(within(0, 100000))
      ->type_name("COUNT")
      ->capture_default_str();
  add_threads_option(*command, options->threads);
  command->add_option("--workers", options->workers, "Threads that prepare images; 0 is one per core")
      ->check(within(0, 1024))
      ->type_name("N")
      ->capture_default_str();
  command->add_option("--out", options->out, "Folder for report.html, confusion.png and evaluation.json")
      ->type_name("FOLDER");
  options->output.add_option(*command);
  command->callback([options] { run_eval_classify(*options); });
}

}  // namespace mhla::cli
