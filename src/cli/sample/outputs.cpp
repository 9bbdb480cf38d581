// Files of drawn pictures.
#include "cli/sample/outputs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "cli/commands.hpp"
#include "io/apng.hpp"
#include "io/disk_space.hpp"
#include "io/file.hpp"
#include "io/png.hpp"
#include "mhla/version.hpp"
#include "report/text.hpp"
#include "tasks/generate/pictures.hpp"

namespace mhla::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kLongestRow = 16;  // pictures of a class in one row
constexpr std::int64_t kLine = 2;         // pixels between pictures
constexpr double kMostFrameBytes = 2e9;
constexpr std::chrono::milliseconds kStep{80}, kEnd{2000};  // how long a frame is shown, and the last one
constexpr double kArchiveBytes = 4096;                      // headers and directory, rounded up

// A row for every class if that is not too long; else about as wide as high.
std::int64_t columns_for(const SampleOptions& options, const tasks::PictureSet& set) {
  if (options.columns > 0) return std::min(options.columns, set.size());
  if (set.classes.size() > 1 && set.count <= kLongestRow) return set.count;
  return static_cast<std::int64_t>(std::ceil(std::sqrt(static_cast<double>(set.size()))));
}

std::int64_t side(std::int64_t pictures, std::int64_t pixels) { return pictures * (pixels + kLine) - kLine; }

std::string gigabytes(double bytes) { return fmt::format("{} GB", report::three_digits(bytes / 1e9)); }

// A class as part of a file's name.
std::string file_name(const std::string& name) {
  std::string safe = name;
  std::ranges::replace_if(
      safe, [](unsigned char letter) { return letter < 0x21 || letter == '/' || letter == 0x7F; }, '_');
  return safe;
}

io::PngTexts texts(const io::Json& parameters) {
  return {{"Software", fmt::format("mhla {}", version())},
          {"mhla.sample", parameters.dump(-1, ' ', false, io::Json::error_handler_t::replace)}};
}

std::span<const std::uint8_t> bytes_of(const at::Tensor& pixels) {
  return {pixels.const_data_ptr<std::uint8_t>(), static_cast<std::size_t>(pixels.numel())};
}

}  // namespace

SampleOutputs::SampleOutputs(const SampleOptions& options, const SampleJob& job)
    : options_(options), job_(job), columns_(columns_for(options, job.set)) {
  std::set<fs::path> files;
  for (const auto& [option, file] : {std::pair{"--out", options.out},
                                     {"--npz", options.npz},
                                     {"--animate", options.animate},
                                     {"--separate", options.separate}})
    if (!file.empty() && !files.insert(fs::weakly_canonical(file)).second)
      throw UsageError(fmt::format("{} is {}, which another option names too", option, file));
  if (!options.out.empty()) check_sheet("--out");
  if (!options.animate.empty()) check_sheet("--animate");
  if (!options.npz.empty()) check_npz();
  const std::int64_t count = job.set.size(), height = job.height, width = job.width;
  if (!options.separate.empty()) {
    std::error_code failure;
    fs::create_directories(options.separate, failure);
    if (failure) throw Error(fmt::format("{}: the folder cannot be made: {}", options.separate, failure.message()));
  }
  if (!options.out.empty()) sheet_.emplace(options.out);
  if (!options.animate.empty()) animation_.emplace(options.animate);
  if (!options.npz.empty()) {
    npz_.emplace(options.npz);
    npz_->begin("arr_0", io::NpzWriter::Type::uint8, {count, height, width, 3});
  }
  if (sheet_ || animation_) pictures_ = at::zeros({count, height, width, 3}, at::kByte);
  if (animation_) frames_ = at::zeros({job.request.steps, count, height, width, 3}, at::kByte);
}

void SampleOutputs::check_sheet(const char* option) const {
  const std::int64_t count = job_.set.size(), rows = (count + columns_ - 1) / columns_;
  const std::int64_t height = side(rows, job_.height), width = side(columns_, job_.width);
  const std::int64_t largest = io::kLargestPngSide;
  if (height > largest || width > largest || height * width > io::kMostPixels)
    throw UsageError(fmt::format(
        "{}: {} rows of {} pictures have {} x {} pixels; a side may have {}, and all {}; --separate and --npz take any "
        "number of pictures",
        option, rows, columns_, width, height, largest, io::kMostPixels));
  if (options_.animate.empty()) return;
  const double bytes = 3.0 * static_cast<double>(count * job_.height * job_.width * job_.request.steps);
  if (bytes > kMostFrameBytes)
    throw UsageError(
        fmt::format("--animate: {} steps of {} pictures take {}; at most {} are possible, with fewer of "
                    "either",
                    job_.request.steps, count, gigabytes(bytes), gigabytes(kMostFrameBytes)));
}

void SampleOutputs::check_npz() const {
  const auto free = io::free_bytes(options_.npz);
  const double each = 3.0 * static_cast<double>(job_.height * job_.width) + sizeof(std::int64_t);
  const double needed = each * static_cast<double>(job_.set.size()) + kArchiveBytes;
  if (!free || needed <= static_cast<double>(*free)) return;
  const double possible = std::floor(std::max(0.0, static_cast<double>(*free) - kArchiveBytes) / each);
  throw UsageError(fmt::format("--npz: {} pictures need {}, but the disk of {} has {} free, for {} pictures",
                               report::grouped(static_cast<double>(job_.set.size())), gigabytes(needed), options_.npz,
                               gigabytes(static_cast<double>(*free)), report::grouped(possible)));
}

void SampleOutputs::take_step(std::int64_t picture, std::int64_t step, const at::Tensor& pixels) {
  frames_[step][picture].copy_(pixels);
}

void SampleOutputs::write_alone(std::int64_t picture, const at::Tensor& pixels) const {
  const tasks::PictureSet alone{.classes = {job_.set.label(picture)}, .count = 1, .first = job_.set.number(picture)};
  const std::string name = file_name(tasks::class_name(alone.classes[0], job_.generator));
  const fs::path file = fs::path(options_.separate) / fmt::format("{}_{:06}.png", name, alone.first);
  const io::Json parameters =
      parameters_of(job_, options_, alone, fmt::format(" --separate {}", quoted(options_.separate)));
  io::write_file(file, io::encode_png(bytes_of(pixels), job_.width, job_.height, texts(parameters)));
}

void SampleOutputs::take(std::int64_t begin, const at::Tensor& pixels) {
  if (npz_) npz_->write(bytes_of(pixels));
  if (pictures_.defined()) pictures_.narrow(0, begin, pixels.size(0)).copy_(pixels);
  if (!options_.separate.empty())
    for (std::int64_t i = 0; i < pixels.size(0); ++i) write_alone(begin + i, pixels[i]);
}

void SampleOutputs::finish_npz() {
  const tasks::PictureSet& set = job_.set;
  npz_->begin("arr_1", io::NpzWriter::Type::int64, {set.size()});
  for (std::int64_t picture = 0; picture < set.size(); ++picture) {
    const std::int64_t label = set.label(picture);
    npz_->write(std::span(&label, 1));
  }
  npz_->finish();
}

io::PngTexts SampleOutputs::texts_of(const char* option, const std::string& file) const {
  return texts(
      parameters_of(job_, options_, job_.set, fmt::format(" --columns {} {} {}", columns_, option, quoted(file))));
}

void SampleOutputs::finish_animation(const io::Image& sheet) {
  std::vector<io::AnimationFrame> frames;
  frames.reserve(static_cast<std::size_t>(frames_.size(0)));
  for (std::int64_t step = 0; step < frames_.size(0); ++step)
    frames.push_back({tasks::grid_of(frames_[step], columns_), kStep});
  frames.back() = {sheet, kEnd};
  animation_->write(io::encode_apng(sheet, frames, texts_of("--animate", options_.animate)));
  animation_->finish();
}

SampleOutputs::Written SampleOutputs::finish() {
  Written written;
  const std::int64_t count = job_.set.size(), rows = (count + columns_ - 1) / columns_;
  io::Image sheet;
  if (pictures_.defined()) sheet = tasks::grid_of(pictures_, columns_);
  if (sheet_) {
    sheet_->write(io::encode_png(sheet.rgb, sheet.width, sheet.height, texts_of("-o", options_.out)));
    sheet_->finish();
    written.emplace_back(options_.out,
                         fmt::format("the pictures in {} row{} of {}", rows, rows == 1 ? "" : "s", columns_));
  }
  if (animation_) {
    finish_animation(sheet);
    written.emplace_back(options_.animate, fmt::format("an animation of {} steps", frames_.size(0)));
  }
  if (npz_) {
    finish_npz();
    written.emplace_back(options_.npz, fmt::format("arr_0, uint8 [{}, {}, {}, 3], and arr_1, their classes", count,
                                                   job_.height, job_.width));
  }
  if (!options_.separate.empty()) written.emplace_back(options_.separate, fmt::format("{} PNG files", count));
  return written;
}

}  // namespace mhla::cli
