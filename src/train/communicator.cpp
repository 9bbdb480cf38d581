// A process on its own, and the choice of who takes part.
#include "train/communicator.hpp"

#include "train/communicator_mpi.hpp"

namespace mhla::train {
namespace {

class Alone : public Communicator {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  int local_rank() const override { return 0; }
  std::string describe() const override { return "one process"; }
  void all_reduce(const at::Tensor&) override {}
  void broadcast(const at::Tensor&, int) override {}
  void barrier() override {}
  Wait start_all_reduce(const at::Tensor&) override {
    return [] {};
  }
};

}  // namespace

bool Communicator::any(bool condition) {
  if (size() == 1) return condition;
  const at::Tensor count = at::full({1}, condition ? 1 : 0, at::kLong);
  all_reduce(count);
  return count.item<std::int64_t>() > 0;
}

std::unique_ptr<Communicator> alone() { return std::make_unique<Alone>(); }

std::unique_ptr<Communicator> make_communicator() {
  auto communicator = launched_by_mpi() ? make_mpi_communicator() : alone();
  check_announced_size(communicator->size());
  return communicator;
}

}  // namespace mhla::train
