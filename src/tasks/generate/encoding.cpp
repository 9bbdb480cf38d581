// Batches through the encoder, shards to the disk.
#include "tasks/generate/encoding.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "data/image_loader.hpp"
#include "diffusion/noise.hpp"
#include "io/new_folder.hpp"
#include "tasks/usage_error.hpp"
#include "tensor_io/tensors.hpp"

namespace mhla::tasks {
namespace {

// Collects the latents of a split and writes them a shard at a time.
class ShardWriter {
 public:
  ShardWriter(std::filesystem::path folder, std::int64_t shard, at::ScalarType type, const std::string& about)
      : folder_(std::move(folder)), shard_(shard), type_(type), about_(about) {}

  void add(const at::Tensor& latents, const at::Tensor& labels) {
    latents_.push_back(latents);
    labels_.push_back(labels);
    held_ += labels.size(0);
    if (held_ >= shard_) write();
  }
  void write() {
    if (held_ == 0) return;
    io::save_tensors(folder_ / fmt::format("latents-{:05}.safetensors", files_++),
                     {{"latents", at::cat(latents_).to(type_)}, {"labels", at::cat(labels_)}},
                     {{"mhla.latents", about_}});
    latents_.clear();
    labels_.clear();
    held_ = 0;
  }
  std::int64_t files() const { return files_; }

 private:
  std::filesystem::path folder_;
  std::int64_t shard_;
  at::ScalarType type_;
  std::string about_;
  std::vector<at::Tensor> latents_, labels_;
  std::int64_t held_ = 0, files_ = 0;
};

void check(const EncodeOptions& options, const models::SdVae& autoencoder) {
  for (const std::int64_t side : options.image_size)
    if (side % autoencoder.options.factor() != 0)
      throw UsageError(
          fmt::format("--image-size is {} x {}; both must be multiples of {}, the factor of the autoencoder",
                      options.image_size[0], options.image_size[1], autoencoder.options.factor()));
  for (const char* split : {"train", "val", "test"})
    if (std::filesystem::exists(std::filesystem::path(options.out) / split))
      throw UsageError(
          fmt::format("--out is {}, which has a folder {} already; choose a new folder", options.out, split));
}

}  // namespace

std::vector<Encoded> encode_images(const EncodeOptions& options, models::SdVae& autoencoder, at::Device device,
                                   const std::function<void(std::int64_t, std::int64_t)>& progress) {
  check(options, autoencoder);
  const torch::NoGradGuard no_gradient;
  std::vector<std::string> splits = data::image_splits(options.data);
  if (std::ranges::find(splits, "train") == splits.end())
    throw UsageError(fmt::format("--data is {}, which has no split train", options.data));
  std::ranges::sort(splits, {}, [](const std::string& split) { return split != "train"; });
  const std::vector<std::string> classes = data::open_image_source(options.data, "train")->classes();
  std::vector<std::shared_ptr<const data::ImageSource>> sources;
  std::int64_t all = 0;
  for (const std::string& split : splits) {
    sources.push_back(data::open_image_source(options.data, split, classes));
    all += sources.back()->size();
  }
  const double scale = autoencoder.options.scaling_factor;
  const std::string about = io::Json{{"classes", classes}, {"scale", scale}}.dump();

  std::vector<Encoded> encoded;
  std::int64_t done = 0;
  for (std::size_t i = 0; i < splits.size(); ++i) {
    data::ImageLoaderOptions loading;
    loading.batch = options.batch;
    loading.image_size = options.image_size;
    loading.crop_fraction = 1.0;
    loading.normalization = {{0.5F, 0.5F, 0.5F}, {0.5F, 0.5F, 0.5F}};  // from -1 to 1
    loading.threads = options.workers;
    data::ImageLoader loader(sources[i], loading);
    io::NewFolder folder(std::filesystem::path(options.out) / splits[i]);
    ShardWriter writer(folder.unfinished(), options.shard, options.half ? at::kHalf : at::kFloat, about);
    Encoded& result = encoded.emplace_back(Encoded{.split = splits[i]});
    loader.start(0);
    while (const auto batch = loader.next()) {
      result.bad += batch->bad;
      const std::int64_t count = batch->labels.size(0);
      if (count > 0) {
        const at::Tensor pictures = batch->images.to(device);
        diffusion::PictureNoise noise(options.seed, done, count);
        std::vector<at::Tensor> forms;
        for (const at::Tensor& form : {pictures, pictures.flip(3)}) {
          const auto posterior = autoencoder.encode(form);
          const at::Tensor drawn = noise.draw(posterior.mean.sizes().slice(1)).to(device);
          forms.push_back((posterior.sample(drawn) * scale).cpu());
        }
        writer.add(at::stack(forms, 1), batch->labels);
      }
      result.pictures += count;
      done += count + batch->bad;
      progress(done, all);
    }
    writer.write();
    result.files = writer.files();
    if (result.files == 0)
      throw Error(fmt::format("{}: none of the images of {} can be read", options.data, splits[i]));
    folder.finish();
  }
  return encoded;
}

}  // namespace mhla::tasks
