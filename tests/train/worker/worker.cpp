// Trains the toy model in a process of its own: train_worker OUT STEPS [MILLISECONDS_PER_STEP [DROPOUT]]
#include <cstdlib>
#include <exception>
#include <iostream>

#include "train/toy_task.hpp"
#include "train/trainer.hpp"

namespace {

int train(int argc, char** argv) {
  using namespace mhla::train;
  const auto communicator = make_communicator();
  torch::set_num_threads(1);
  testing::ToyTask task(*communicator, argc > 4 ? std::atof(argv[4]) : 0.1);
  task.toy().with_batch_norm = communicator->size() == 1 && argc <= 4;
  task.step_time = std::chrono::milliseconds(argc > 3 ? std::atoi(argv[3]) : 0);
  TrainerOptions options;
  options.out = argv[1];
  options.schedule = {.peak = 1e-2, .warmup = 3, .steps = std::atoi(argv[2])};
  options.adamw.clip = 1.0;
  options.ema = 0.9;
  options.seed = 5;
  options.log_every = 1;
  options.checkpoint_every = 5;
  options.settings = {{"steps", options.schedule.steps}};
  return Trainer(task, options, *communicator).run() == Ending::finished ? 0 : 3;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  try {
    return train(argc, argv);
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
