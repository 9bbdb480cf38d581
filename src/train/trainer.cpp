// One step and what surrounds it. Nothing waits for the device between two log lines.
#include "train/trainer.hpp"

#include <ATen/DeviceAccelerator.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <limits>
#include <set>

#include "io/file.hpp"
#include "mhla/types.hpp"
#include "train/autocast.hpp"
#include "train/flop_count.hpp"
#include "train/interrupt.hpp"
#include "train/random_state.hpp"

namespace mhla::train {
namespace {

std::string megabytes(double bytes) { return fmt::format("{:.1f} MB", bytes / 1e6); }

// The settings in which two runs differ, the first few of them: "lr: 0.001, now 0.002", "model/width: 64, now 96".
std::vector<std::string> differences(const io::Json& stored, const io::Json& present) {
  constexpr std::size_t kListed = 8;
  const io::Json before = stored.flatten(), now = present.flatten();
  std::set<std::string> names;
  for (const io::Json* settings : {&before, &now})
    for (const auto& item : settings->items()) names.insert(item.key());
  names.erase("");  // of no settings at all
  std::vector<std::string> list;
  const auto text = [](const io::Json& settings, const std::string& name) {
    return settings.contains(name) ? settings.at(name).dump() : std::string("not set");
  };
  for (const std::string& name : names)
    if (!before.contains(name) || !now.contains(name) || before.at(name) != now.at(name))
      list.push_back(fmt::format("{}: {}, now {}", name.substr(1), text(before, name), text(now, name)));
  if (list.size() <= kListed) return list;
  const std::string rest = fmt::format("{} more", list.size() - kListed);
  list.resize(kListed);
  list.push_back(rest);
  return list;
}

std::int64_t checked_steps_per_epoch(const Task& task, std::int64_t accumulate) {
  if (accumulate < 1) throw Error(fmt::format("{} batches per step; it must be at least one", accumulate));
  const std::int64_t steps = task.batches() / accumulate;
  if (steps < 1)
    throw Error(fmt::format("an epoch has {} batches, fewer than the {} of one step; a smaller batch would fit",
                            task.batches(), accumulate));
  return steps;
}

std::vector<Parameter> parameters_of(Task& task) {
  auto parameters = trained_parameters(task.model(), [&](const std::string& name) { return task.decays(name); });
  for (Parameter& parameter : parameters) parameter.rate = task.rate(parameter.name);
  return parameters;
}

}  // namespace

Trainer::Trainer(Task& task, const TrainerOptions& options, Communicator& communicator)
    : task_(task), options_(options), communicator_(communicator), device_(task.model().parameters().front().device()),
      parameters_(parameters_of(task)), optimizer_(parameters_, options.adamw),
      checkpoints_(options.out / "checkpoints"), steps_per_epoch_(checked_steps_per_epoch(task, options.accumulate)) {
  options_.schedule.validate();
  if (options_.resume != "auto" && options_.resume != "none")
    throw Error(fmt::format("resume is \"{}\"; it may be auto or none", options_.resume));
  if (options_.ema > 0.0) ema_.emplace(task.model(), options_.ema);
  if (communicator_.size() > 1) buckets_ = std::make_unique<GradientBuckets>(tensors_of(parameters_), communicator_);
  for (std::int64_t* interval : {&options_.log_every, &options_.evaluate_every, &options_.checkpoint_every})
    if (*interval <= 0) *interval = steps_per_epoch_;
  loss_sum_ = at::zeros({}, at::TensorOptions(at::kFloat).device(device_));
}

Facts Trainer::memory_facts() const {
  double gradients = 0.0;
  for (const Parameter& parameter : parameters_) gradients += static_cast<double>(parameter.tensor.nbytes());
  std::string text = fmt::format("weights {}, gradients {}, optimizer {}",
                                 megabytes(static_cast<double>(bytes_of(named_tensors(task_.model())))),
                                 megabytes(gradients), megabytes(static_cast<double>(bytes_of(optimizer_.state()))));
  if (ema_) text += fmt::format(", average {}", megabytes(static_cast<double>(bytes_of(ema_->state()))));
  return {{"memory", text},
          {"steps", fmt::format("{} of {} {} each, {} an epoch; {}", options_.schedule.steps,
                                task_.samples() * options_.accumulate, task_.unit(), steps_per_epoch_,
                                communicator_.describe())}};
}

NamedTensors Trainer::state() const {
  NamedTensors all;
  for (const auto& [name, tensor] : named_tensors(task_.model())) all.emplace("model/" + name, tensor);
  for (const auto& [name, tensor] : optimizer_.state()) all.emplace("optimizer/" + name, tensor);
  if (ema_)
    for (const auto& [name, tensor] : ema_->state()) all.emplace("ema/" + name, tensor);
  return all;
}

void Trainer::check_settings(const Checkpoint& checkpoint) const {
  const auto different = differences(checkpoint.settings, options_.settings);
  if (!different.empty())
    throw Error(fmt::format("{}: its run was made with other settings ({}); `--resume none` starts anew",
                            (options_.out / "checkpoints").string(), fmt::join(different, "; ")));
}

void Trainer::say(const std::string& line) const { *options_.text << line << std::endl; }

// What every rank must know of a checkpoint beside its tensors: found, steps, best score, seconds.
at::Tensor Trainer::read_checkpoint(NamedTensors& random) {
  if (options_.resume == "none") checkpoints_.remove_all();
  std::optional<Checkpoint> found = checkpoints_.newest([&](const std::string& line) { say(line); });
  if (!found) return at::zeros({4}, at::kDouble);
  check_settings(*found);
  for (auto& [name, tensor] : random) {
    const auto stored = found->tensors.extract("random/" + name);
    if (stored && stored.mapped().sizes() == tensor.sizes())
      tensor.copy_(stored.mapped());
    else
      say("the checkpoint is of another number of processes: random numbers begin anew");
  }
  restore(state(), found->tensors, "", fmt::format("checkpoint of step {}", found->step));
  return at::tensor({1.0, static_cast<double>(found->step),
                     found->best.value_or(std::numeric_limits<double>::quiet_NaN()), found->seconds},
                    at::kDouble);
}

// Rank 0 reads; the others receive its weights and state, also at the start of a new run.
void Trainer::resume() {
  torch::manual_seed(options_.seed + static_cast<std::uint64_t>(communicator_.rank()));
  NamedTensors random = random_state(device_, communicator_);
  at::Tensor header = at::zeros({4}, at::kDouble);
  if (communicator_.leads()) header = read_checkpoint(random);
  communicator_.broadcast(header);
  for (const auto& [name, tensor] : state()) communicator_.broadcast(tensor);
  for (const auto& [name, tensor] : random) communicator_.broadcast(tensor);
  restore_random_state(random, device_, communicator_);
  if (header[0].item<double>() == 0.0) return;
  step_ = static_cast<std::int64_t>(header[1].item<double>());
  if (const auto best = header[2].item<double>(); !std::isnan(best)) best_ = best;
  seconds_ = header[3].item<double>();
}

// The folder is this run's alone from here on; the processes of a run share the lock of the first.
void Trainer::take_folder() {
  if (!communicator_.leads()) return;
  lock_.emplace(options_.out, [&](const std::string& line) { say(line); });
  io::remove_unfinished(options_.out);
}

Ending Trainer::run() {
  take_folder();
  resume();
  logged_step_ = step_;
  logged_skips_ = static_cast<std::int64_t>(optimizer_.skipped().item<float>());
  if (communicator_.leads()) {
    for (const auto& fact : memory_facts()) options_.about.push_back(fact);
    for (const auto& [what, value] : options_.about) *options_.text << fmt::format("{:<11}{}\n", what, value);
    log_.emplace(options_.out, step_, task_.unit(), options_.about, *options_.text);
    if (step_ > 0) say(fmt::format("resumed after step {} of {}", step_, options_.schedule.steps));
  }
  const InterruptGuard interrupts;
  task_.model().train();
  interval_start_ = Clock::now();
  for (bool started = false; step_ < options_.schedule.steps; started = true) {
    if (!started || step_ % steps_per_epoch_ == 0)
      task_.start(step_ / steps_per_epoch_, step_ % steps_per_epoch_ * options_.accumulate);
    train_step();
    ++step_;
    const bool last = step_ == options_.schedule.steps;
    const bool stop = communicator_.any(InterruptGuard::requested());
    if (last || stop || step_ == 1 || due(options_.log_every)) log();
    if (last || due(options_.evaluate_every)) evaluate();
    if (last || stop || due(options_.checkpoint_every)) save();
    if (stop && !last) {
      if (log_) say(fmt::format("interrupted; saved after step {}", step_));
      return Ending::interrupted;
    }
  }
  return Ending::finished;
}

bool Trainer::due(std::int64_t interval) const { return step_ % interval == 0; }

void Trainer::backward() {
  if (buckets_)
    buckets_->clear();
  else
    for (const Parameter& parameter : parameters_) at::Tensor(parameter.tensor).mutable_grad().reset();
  for (std::int64_t batch = 0; batch < options_.accumulate; ++batch) {
    at::Tensor loss;
    {
      const Autocast autocast(device_, options_.bf16);
      loss = task_.loss();
    }
    if (options_.accumulate > 1) loss = loss / options_.accumulate;
    if (buckets_ && batch + 1 == options_.accumulate) buckets_->expect_last();
    loss.backward();
    loss_sum_.add_(loss.detach());
  }
  if (buckets_) buckets_->finish();
}

void Trainer::train_step() {
  const bool count = step_flops_ == 0.0 && peak_flops(options_.device_name, options_.bf16).has_value();
  if (count) {
    const FlopCounter counter;
    backward();
    step_flops_ = counter.flops();
  } else {
    backward();
  }
  norm_ = optimizer_.step(options_.schedule.at(step_));
  task_.after_step();
  if (ema_) ema_->update(step_);
}

void Trainer::log() {
  if (step_ == logged_step_) return;
  communicator_.all_reduce(loss_sum_);
  const auto steps = static_cast<double>(step_ - logged_step_);
  const double loss = loss_sum_.item<double>() / steps;
  const auto skipped = static_cast<std::int64_t>(optimizer_.skipped().item<float>());
  const double seconds = std::chrono::duration<double>(Clock::now() - interval_start_).count();
  seconds_ += seconds;
  if (log_) {
    StepReport report{step_,
                      options_.schedule.steps,
                      static_cast<double>(step_) / static_cast<double>(steps_per_epoch_),
                      loss,
                      norm_.item<double>(),
                      options_.schedule.at(step_ - 1),
                      steps * static_cast<double>(task_.samples() * options_.accumulate) / seconds,
                      std::nullopt,
                      seconds / steps * static_cast<double>(options_.schedule.steps - step_),
                      skipped};
    if (const auto peak = peak_flops(options_.device_name, options_.bf16); peak && step_ > 1)
      report.of_peak = step_flops_ * steps / seconds / *peak;
    log_->step(report);
    if (step_ == 1 && device_.is_cuda())
      say(fmt::format(
          "memory     {} at most, activations included",
          megabytes(static_cast<double>(at::accelerator::getDeviceStats(device_.index()).allocated_bytes[0].peak))));
  }
  lost_steps_ = skipped - logged_skips_ == step_ - logged_step_ ? lost_steps_ + step_ - logged_step_ : 0;
  if (lost_steps_ >= options_.log_every)
    throw Error(
        fmt::format("the gradients of the last {} steps were not finite, at learning rate {:.3g}; a lower "
                    "learning rate or a longer warm-up may help",
                    lost_steps_, options_.schedule.at(step_ - 1)));
  logged_step_ = step_;
  logged_skips_ = skipped;
  loss_sum_.zero_();
  interval_start_ = Clock::now();
}

void Trainer::evaluate() {
  log();
  {
    const EmaWeights weights(ema_ ? &*ema_ : nullptr);
    const at::NoGradGuard no_grad;
    task_.model().eval();
    const Evaluation evaluation = [&] {
      const Autocast autocast(device_, options_.bf16);
      return task_.evaluate();
    }();
    const bool best = !evaluation.score || !best_ || *evaluation.score > *best_;
    if (best) best_ = evaluation.score;
    if (best && log_) task_.save_best(evaluation);
    if (log_)
      log_->evaluation(step_, static_cast<double>(step_) / static_cast<double>(steps_per_epoch_), seconds_, evaluation,
                       best);
    task_.model().train();
  }
  interval_start_ = Clock::now();
}

void Trainer::save() {
  log();
  NamedTensors tensors = state();
  for (const auto& [name, tensor] : random_state(device_, communicator_)) tensors.emplace("random/" + name, tensor);
  if (communicator_.leads())
    checkpoints_.save({step_, options_.settings, best_, seconds_, communicator_.size(), tensors}, options_.keep);
  interval_start_ = Clock::now();
}

}  // namespace mhla::train
