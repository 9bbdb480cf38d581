// Latents by number, whatever files they lie in, and batches of them.
#include "tasks/generate/latents.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "data/random_stream.hpp"
#include "io/file.hpp"
#include "io/npy.hpp"
#include "models/base/weights.hpp"
#include "tasks/usage_error.hpp"
#include "tensor_io/tensors.hpp"

namespace mhla::tasks {
namespace fs = std::filesystem;
namespace {

std::vector<fs::path> files_in(const fs::path& folder, const char* extension) {
  std::vector<fs::path> files;
  std::error_code failure;
  for (const auto& entry : fs::directory_iterator(folder, failure))
    if (entry.path().extension() == extension) files.push_back(entry.path());
  std::ranges::sort(files);
  return files;
}

// FOLDER/*_features, or an empty path.
fs::path features_folder(const fs::path& data) {
  std::error_code failure;
  for (const auto& entry : fs::directory_iterator(data, failure))
    if (entry.is_directory() && entry.path().filename().string().ends_with("_features")) return entry.path();
  return {};
}

// Stored numbers of any type as float32.
at::Tensor as_floats(std::span<const std::byte> data, const std::string& dtype, at::IntArrayRef shape,
                     const std::string& where) {
  const at::ScalarType type = io::torch_type(dtype, where);
  const at::Tensor raw = at::empty(shape, type);
  std::memcpy(raw.data_ptr(), data.data(), data.size());
  return raw.to(at::kFloat);
}

class LatentSource {
 public:
  virtual ~LatentSource() = default;
  std::int64_t size() const { return std::ssize(labels); }
  // Form `form` of a picture: 0 as it is, 1 mirrored. [C, H, W].
  virtual at::Tensor load(std::int64_t index, std::int64_t form) const = 0;

  std::vector<std::int64_t> labels;
  std::int64_t forms = 1;
  std::vector<std::int64_t> shape;  // [C, H, W]
  std::vector<std::string> classes;
  double scale = 0.18215;
};

// What `mhla encode` writes.
class ShardedLatents : public LatentSource {
 public:
  explicit ShardedLatents(const fs::path& folder) {
    for (const fs::path& path : files_in(folder, ".safetensors")) add(path);
    if (labels.empty()) throw Error(fmt::format("{}: there are no latents", folder.string()));
  }

  at::Tensor load(std::int64_t index, std::int64_t form) const override {
    const auto after = std::ranges::upper_bound(shards_, index, {}, &Shard::first);
    const Shard& shard = *std::prev(after);
    const io::SafeTensor& stored = shard.file.at("latents");
    const std::size_t bytes = stored.data.size() / static_cast<std::size_t>(stored.shape[0] * forms);
    const auto place = static_cast<std::size_t>((index - shard.first) * forms + form);
    return as_floats(stored.data.subspan(place * bytes, bytes), stored.dtype, shape, shard.file.source());
  }

 private:
  struct Shard {
    std::int64_t first;  // number of its first picture
    io::SafeTensors file;
  };

  void add(const fs::path& path) {
    Shard shard{size(), io::SafeTensors::map(path)};
    const io::SafeTensor& latents = shard.file.at("latents");
    const at::Tensor of_shard = io::to_torch(shard.file, "labels");
    const auto check = [&](bool good, const std::string& what) {
      if (!good) throw Error(fmt::format("{}: {}", path.string(), what));
    };
    check(latents.shape.size() == 5 && latents.shape[0] > 0 && (latents.shape[1] == 1 || latents.shape[1] == 2),
          fmt::format("\"latents\" is [{}]; it must be [pictures, 1 or 2, channels, height, width]",
                      fmt::join(latents.shape, ", ")));
    check(of_shard.scalar_type() == at::kLong && of_shard.dim() == 1 && of_shard.size(0) == latents.shape[0],
          fmt::format("\"labels\" must be {} int64 numbers, one for each picture", latents.shape[0]));
    const std::vector<std::int64_t> one(latents.shape.begin() + 2, latents.shape.end());
    const io::Json about = models::stored_json(shard.file, "mhla.latents");
    std::vector<std::string> names;
    double factor = 0.0;
    check(about.is_object() && about.contains("classes") && io::read_exactly(about["classes"], names) &&
              about.contains("scale") && io::read_exactly(about["scale"], factor) && !names.empty(),
          R"(metadata "mhla.latents" is not {"classes": [names], "scale": x})");
    if (shards_.empty()) {
      shape = one;
      forms = latents.shape[1];
      classes = names;
      scale = factor;
    }
    check(one == shape && latents.shape[1] == forms && names == classes && factor == scale,
          "its latents have another shape, scale or classes than those of the file before");
    const auto values = std::span(of_shard.data_ptr<std::int64_t>(), static_cast<std::size_t>(of_shard.numel()));
    check(std::ranges::all_of(values, [&](std::int64_t label) { return label >= 0 && label < std::ssize(classes); }),
          fmt::format("\"labels\" must be from 0 to {}", classes.size() - 1));
    labels.insert(labels.end(), values.begin(), values.end());
    shards_.push_back(std::move(shard));
  }

  std::vector<Shard> shards_;
};

// The authors' folders. Classes have numbers for names.
class NumpyLatents : public LatentSource {
 public:
  explicit NumpyLatents(const fs::path& features) : files_(files_in(features, ".npy")) {
    std::string name = features.filename().string();
    name.replace(name.rfind("_features"), std::string::npos, "_labels");
    const fs::path folder = features.parent_path() / name;
    if (files_.empty()) throw Error(fmt::format("{}: there are no .npy files", features.string()));
    std::int64_t most = 0;
    for (const fs::path& file : files_) {
      const fs::path path = folder / file.filename();
      const auto bytes = io::read_file(path);
      const io::NpyArray array = io::parse_npy(bytes, path.string());
      if (array.dtype != "I64" || array.data.size() != sizeof(std::int64_t))
        throw Error(fmt::format("{}: it must hold one int64 number, the class", path.string()));
      std::int64_t label = 0;
      std::memcpy(&label, array.data.data(), sizeof label);
      if (label < 0 || label >= (1 << 20))
        throw Error(fmt::format("{}: the class is {}; it may be 0 to {}", path.string(), label, (1 << 20) - 1));
      most = std::max(most, label);
      labels.push_back(label);
    }
    for (std::int64_t label = 0; label <= most; ++label) classes.push_back(std::to_string(label));
    const auto first = io::read_file(files_.front());
    const io::NpyArray array = io::parse_npy(first, files_.front().string());
    check(array, files_.front());
    forms = array.shape[0];
    shape.assign(array.shape.begin() + 1, array.shape.end());
  }

  at::Tensor load(std::int64_t index, std::int64_t form) const override {
    const fs::path& path = files_[static_cast<std::size_t>(index)];
    const auto bytes = io::read_file(path);
    const io::NpyArray array = io::parse_npy(bytes, path.string());
    check(array, path);
    if (array.shape[0] != forms || !std::equal(shape.begin(), shape.end(), array.shape.begin() + 1))
      throw Error(fmt::format("{}: its shape is ({}); that of the first file is ({}, {})", path.string(),
                              fmt::join(array.shape, ", "), forms, fmt::join(shape, ", ")));
    const std::size_t size = array.data.size() / static_cast<std::size_t>(forms);
    return as_floats(array.data.subspan(static_cast<std::size_t>(form) * size, size), array.dtype, shape,
                     path.string());
  }

 private:
  static void check(const io::NpyArray& array, const fs::path& path) {
    if (array.shape.size() != 4 || (array.shape[0] != 1 && array.shape[0] != 2))
      throw Error(fmt::format("{}: its shape is ({}); it must be (1 or 2, channels, height, width)", path.string(),
                              fmt::join(array.shape, ", ")));
  }

  std::vector<fs::path> files_;
};

class LatentExamples : public ExampleLoader {
 public:
  struct Options {
    std::int64_t batch = 1, rank = 0, world = 1;
    std::uint64_t seed = 0;
    bool train = false;  // shuffled, mirrored at random, whole batches only
  };

  LatentExamples(std::shared_ptr<const LatentSource> source, Options options)
      : source_(std::move(source)), options_(options), order_(static_cast<std::size_t>(source_->size())) {
    std::iota(order_.begin(), order_.end(), 0);
  }

  std::int64_t size() const override { return source_->size(); }
  std::int64_t batch() const override { return options_.batch; }
  std::int64_t batches() const override {
    return (size() + (options_.train ? 0 : options_.batch - 1)) / options_.batch;
  }

  void start(std::int64_t epoch, std::int64_t first_batch) override {
    epoch_ = static_cast<std::uint64_t>(epoch);
    next_batch_ = first_batch;
    if (!options_.train) return;
    std::iota(order_.begin(), order_.end(), 0);
    data::RandomStream random{options_.seed, epoch_, kShuffle};
    for (std::size_t left = order_.size(); left > 1; --left)
      std::swap(order_[left - 1], order_[static_cast<std::size_t>(random.below(static_cast<std::int64_t>(left)))]);
  }

  std::optional<Examples> next() override {
    if (next_batch_ == batches()) return std::nullopt;
    const std::int64_t begin = next_batch_++ * options_.batch, count = std::min(options_.batch, size() - begin);
    const std::int64_t first = count * options_.rank / options_.world;
    const std::int64_t last = count * (options_.rank + 1) / options_.world;
    std::vector<at::Tensor> latents;
    std::vector<std::int64_t> labels;
    for (std::int64_t i = begin + first; i < begin + last; ++i) {
      const std::int64_t index = order_[static_cast<std::size_t>(i)];
      data::RandomStream random{options_.seed, epoch_, kForm, static_cast<std::uint64_t>(index)};
      latents.push_back(source_->load(index, options_.train ? random.below(source_->forms) : 0));
      labels.push_back(source_->labels[static_cast<std::size_t>(index)]);
    }
    std::vector<std::int64_t> none{0};
    none.insert(none.end(), source_->shape.begin(), source_->shape.end());
    return Examples{latents.empty() ? at::empty(none) : at::stack(latents), at::tensor(labels, at::kLong), first};
  }

 private:
  enum Purpose : std::uint64_t { kShuffle, kForm };

  std::shared_ptr<const LatentSource> source_;
  Options options_;
  std::vector<std::int64_t> order_;
  std::uint64_t epoch_ = 0;
  std::int64_t next_batch_ = 0;
};

}  // namespace

bool holds_latents(const fs::path& data) {
  return !files_in(data / "train", ".safetensors").empty() || !features_folder(data).empty();
}

TrainingExamples open_latents(const TrainGenerateOptions& options, const GenerateRecipe& recipe,
                              const train::Communicator& communicator) {
  const fs::path data = options.data, features = features_folder(data);
  const auto open = [&](const char* split) -> std::shared_ptr<const LatentSource> {
    if (!features.empty()) return std::make_shared<NumpyLatents>(features);
    return std::make_shared<ShardedLatents>(data / split);
  };
  const auto training = open("train");
  if (recipe.batch * options.accumulate > training->size())
    throw UsageError(fmt::format("--batch is {} and --accumulate {}; there are {} pictures to train on", recipe.batch,
                                 options.accumulate, training->size()));
  TrainingExamples examples;
  examples.facts.classes = training->classes;
  examples.facts.space = "latents";
  examples.facts.latent_scale = training->scale;
  examples.channels = training->shape[0];
  examples.size = {training->shape[1], training->shape[2]};
  LatentExamples::Options loading{recipe.batch, communicator.rank(), communicator.size(), options.seed, true};
  examples.training = std::make_unique<LatentExamples>(training, loading);
  std::int64_t held_out = 0;
  if (features.empty() && !files_in(data / "val", ".safetensors").empty()) {
    const auto validation = open("val");
    if (validation->shape != training->shape || validation->classes != training->classes)
      throw Error(fmt::format("{}: its latents have another shape or other classes than those of train",
                              (data / "val").string()));
    held_out = validation->size();
    loading.train = false;
    loading.batch = held_out_batch(communicator);
    examples.validation = std::make_unique<LatentExamples>(validation, loading);
  }
  examples.description = fmt::format("latents of {} pictures for training, {} for validation; {} classes",
                                     training->size(), held_out, training->classes.size());
  return examples;
}

}  // namespace mhla::tasks
