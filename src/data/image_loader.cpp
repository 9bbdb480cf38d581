// The pool of threads behind ImageLoader.
//
// Batches under way form a queue of at most `prefetch`. A thread claims a few neighbouring images of the first batch
// that has unclaimed ones, and opens the next batch where none has.
#include "data/image_loader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "data/batch_maker.hpp"
#include "mhla/types.hpp"

namespace mhla::data {

class ImageLoader::Implementation {
 public:
  Implementation(std::shared_ptr<const ImageSource> source, ImageLoaderOptions options)
      : maker(std::move(source), std::move(options)) {
    int threads = maker.options().threads;
    if (threads == 0) threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
  }

  ~Implementation() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    to_do_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  void start(std::int64_t epoch, std::int64_t first_batch) {
    const std::int64_t batches = maker.batches();
    if (first_batch < 0 || first_batch > batches)
      throw Error(fmt::format("first_batch is {}; it may be 0 to {}", first_batch, batches));
    {
      std::unique_lock lock(mutex_);
      under_way_.clear();
      to_open_ = to_hand_out_ = batches;
      done_.wait(lock, [this] { return busy_ == 0; });
      failure_ = nullptr;
      maker.begin_epoch(epoch);
      to_open_ = to_hand_out_ = first_batch;
    }
    to_do_.notify_all();
  }

  std::optional<ImageBatch> next() {
    std::shared_ptr<OpenBatch> batch;
    {
      std::unique_lock lock(mutex_);
      if (to_hand_out_ == maker.batches()) return std::nullopt;
      done_.wait(lock, [this] { return failure_ || (!under_way_.empty() && under_way_.front()->unfinished == 0); });
      if (failure_) std::rethrow_exception(failure_);
      batch = std::move(under_way_.front());
      under_way_.pop_front();
      ++to_hand_out_;
    }
    to_do_.notify_all();
    return BatchMaker::finish(*batch);
  }

  BatchMaker maker;

 private:
  static constexpr std::int64_t kClaim = 8;  // images

  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      std::shared_ptr<OpenBatch> batch;
      to_do_.wait(lock, [&] { return stopping_ || (batch = batch_to_work_on()) != nullptr; });
      if (stopping_) return;
      const std::int64_t begin = batch->claimed, end = std::min(batch->count, begin + kClaim);
      batch->claimed = end;
      ++busy_;
      lock.unlock();
      std::exception_ptr failure;
      try {
        maker.fill(*batch, begin, end);
      } catch (...) {
        failure = std::current_exception();
      }
      lock.lock();
      --busy_;
      if (failure) failure_ = failure;
      batch->unfinished -= end - begin;
      if (batch->unfinished == 0 || busy_ == 0 || failure_) done_.notify_all();
    }
  }

  // With the mutex held. Nothing where all batches that may be under way are claimed, or one has failed.
  std::shared_ptr<OpenBatch> batch_to_work_on() {
    if (failure_) return nullptr;
    for (const auto& batch : under_way_)
      if (batch->claimed < batch->count) return batch;
    try {
      while (to_open_ < maker.batches() && std::ssize(under_way_) < maker.options().prefetch) {
        under_way_.push_back(maker.open(to_open_++));
        if (under_way_.back()->count > 0) return under_way_.back();
        done_.notify_all();  // this process has no part in it
      }
    } catch (...) {
      failure_ = std::current_exception();
      done_.notify_all();
    }
    return nullptr;
  }

  std::mutex mutex_;
  std::condition_variable to_do_, done_;
  std::deque<std::shared_ptr<OpenBatch>> under_way_;
  std::int64_t to_open_ = maker.batches(), to_hand_out_ = to_open_;  // of this epoch, the next ones
  int busy_ = 0;                                                     // threads that fill a claim
  bool stopping_ = false;
  std::exception_ptr failure_;
  std::vector<std::thread> threads_;
};

ImageLoader::ImageLoader(std::shared_ptr<const ImageSource> source, ImageLoaderOptions options)
    : implementation_(std::make_unique<Implementation>(std::move(source), std::move(options))) {}
ImageLoader::~ImageLoader() = default;

std::int64_t ImageLoader::batches() const { return implementation_->maker.batches(); }
const ImageLoaderOptions& ImageLoader::options() const { return implementation_->maker.options(); }
const ImageSource& ImageLoader::source() const { return implementation_->maker.source(); }
std::vector<std::int64_t> ImageLoader::bad_images() const { return implementation_->maker.bad_images(); }
void ImageLoader::start(std::int64_t epoch, std::int64_t first_batch) { implementation_->start(epoch, first_batch); }
std::optional<ImageBatch> ImageLoader::next() { return implementation_->next(); }

}  // namespace mhla::data
