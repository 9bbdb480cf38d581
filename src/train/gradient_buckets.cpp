// Filling, sending and collecting buckets.
#include "train/gradient_buckets.hpp"

#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

namespace mhla::train {

struct GradientBuckets::Hook : torch::autograd::PostAccumulateGradHook {
  Hook(GradientBuckets& owner, std::size_t bucket, std::int64_t place) : owner(owner), bucket(bucket), place(place) {}
  void operator()(const torch::autograd::Variable&) override { owner.arrived(bucket, place); }

  GradientBuckets& owner;
  std::size_t bucket;
  std::int64_t place;
};

GradientBuckets::GradientBuckets(const std::vector<at::Tensor>& parameters, Communicator& communicator,
                                 std::int64_t bytes)
    : communicator_(communicator) {
  std::int64_t filled = bytes;
  for (auto parameter = parameters.rbegin(); parameter != parameters.rend(); ++parameter) {
    if (filled >= bytes || parameter->scalar_type() != buckets_.back().parameters.back().scalar_type()) {
      buckets_.emplace_back();
      filled = 0;
    }
    buckets_.back().parameters.push_back(*parameter);
    filled += static_cast<std::int64_t>(parameter->nbytes());
  }
  used_ = at::zeros({static_cast<std::int64_t>(parameters.size())}, at::kLong);
  std::int64_t place = 0;
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    Bucket& bucket = buckets_[b];
    std::int64_t elements = 0;
    for (const at::Tensor& parameter : bucket.parameters) elements += parameter.numel();
    bucket.flat = at::zeros({elements}, bucket.parameters.front().options().requires_grad(false));
    std::int64_t first = 0;
    for (const at::Tensor& parameter : bucket.parameters) {
      bucket.views.push_back(
          bucket.flat.narrow(0, first, parameter.numel()).as_strided(parameter.sizes(), parameter.strides()));
      first += parameter.numel();
      torch::autograd::impl::set_post_acc_grad_hooks(parameter, std::make_unique<Hook>(*this, b, place++));
    }
  }
}

GradientBuckets::~GradientBuckets() {
  for (const Bucket& bucket : buckets_)
    for (const at::Tensor& parameter : bucket.parameters)
      torch::autograd::impl::set_post_acc_grad_hooks(parameter, nullptr);
}

void GradientBuckets::clear() {
  std::vector<at::Tensor> flats;
  for (Bucket& bucket : buckets_) {
    flats.push_back(bucket.flat);
    bucket.missing = bucket.parameters.size();
    for (std::size_t i = 0; i < bucket.parameters.size(); ++i) bucket.parameters[i].mutable_grad() = bucket.views[i];
  }
  at::_foreach_zero_(flats);
  used_.zero_();
  last_ = false;
}

void GradientBuckets::arrived(std::size_t bucket, std::int64_t place) {
  used_.mutable_data_ptr<std::int64_t>()[place] = 1;
  if (!last_) return;
  --buckets_[bucket].missing;
  send_ready();
}

void GradientBuckets::send_ready() {
  while (pending_.size() < buckets_.size() && buckets_[pending_.size()].missing == 0)
    pending_.push_back(communicator_.start_all_reduce(buckets_[pending_.size()].flat));
}

void GradientBuckets::finish() {
  for (Bucket& bucket : buckets_) bucket.missing = 0;  // a parameter without a gradient never arrives
  send_ready();
  for (const Communicator::Wait& wait : pending_) wait();
  pending_.clear();
  communicator_.all_reduce(used_);
  const auto* used = used_.const_data_ptr<std::int64_t>();
  for (const Bucket& bucket : buckets_)
    for (const at::Tensor& parameter : bucket.parameters)
      if (*used++ == 0) parameter.mutable_grad().reset();
}

}  // namespace mhla::train
