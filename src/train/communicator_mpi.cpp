// MPI for launching and for CPU tensors; tensors on GPUs go through NCCL where there is one, else through the host.
#include "train/communicator_mpi.hpp"

#include <fmt/format.h>
#include <mpi.h>

#include <array>
#include <cstdlib>
#include <exception>
#include <limits>

#include "mhla/types.hpp"
#include "train/nccl.hpp"

namespace mhla::train {
namespace {

void check_mpi(int status, const char* what) {
  if (status == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(status, text.data(), &length);
  throw Error(fmt::format("MPI {}: {}", what, std::string_view(text.data(), static_cast<std::size_t>(length))));
}

MPI_Datatype mpi_type(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return MPI_FLOAT;
    case at::kDouble:
      return MPI_DOUBLE;
    case at::kLong:
      return MPI_INT64_T;
    case at::kByte:
      return MPI_UINT8_T;
    default:
      throw Error(fmt::format("communication of {} tensors; it may be float, double, int64 or uint8",
                              c10::toString(tensor.scalar_type())));
  }
}

int mpi_count(const at::Tensor& tensor) {
  TORCH_INTERNAL_ASSERT(tensor.is_contiguous());
  if (tensor.numel() > std::numeric_limits<int>::max())
    throw Error(fmt::format("communication of {} elements at once; at most 2^31 - 1 are possible", tensor.numel()));
  return static_cast<int>(tensor.numel());
}

class MpiCommunicator : public Communicator {
 public:
  MpiCommunicator() {
    int provided = MPI_THREAD_SINGLE;
    check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided), "start");
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
    MPI_Comm machine = MPI_COMM_NULL;
    check_mpi(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &machine), "split");
    MPI_Comm_rank(machine, &local_rank_);
    MPI_Comm_free(&machine);
  }

  ~MpiCommunicator() override {
    nccl_.reset();
    // A rank that ends because of an error must not leave the others waiting for it; but first it says why.
    if (std::uncaught_exceptions() > 0)
      std::atexit([] { MPI_Abort(MPI_COMM_WORLD, 1); });
    else
      MPI_Finalize();
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  int local_rank() const override { return local_rank_; }
  std::string describe() const override { return fmt::format("{} processes, MPI{}", size_, nccl_ ? " and NCCL" : ""); }

  void all_reduce(const at::Tensor& tensor) override { start_all_reduce(tensor)(); }

  void broadcast(const at::Tensor& tensor, int root) override {
    if (Nccl* nccl = nccl_for(tensor)) return nccl->broadcast(tensor, root);
    const at::Tensor host = tensor.cpu();
    check_mpi(MPI_Bcast(host.data_ptr(), mpi_count(host), mpi_type(host), root, MPI_COMM_WORLD), "broadcast");
    if (!tensor.is_cpu()) tensor.copy_(host);
  }

  void barrier() override { check_mpi(MPI_Barrier(MPI_COMM_WORLD), "barrier"); }

  Wait start_all_reduce(const at::Tensor& tensor) override {
    if (Nccl* nccl = nccl_for(tensor)) return nccl->start_all_reduce(tensor);
    const at::Tensor host = tensor.cpu();
    const auto request = std::make_shared<MPI_Request>(MPI_REQUEST_NULL);
    check_mpi(MPI_Iallreduce(MPI_IN_PLACE, host.data_ptr(), mpi_count(host), mpi_type(host), MPI_SUM, MPI_COMM_WORLD,
                             request.get()),
              "sum");
    return [tensor, host, request] {
      check_mpi(MPI_Wait(request.get(), MPI_STATUS_IGNORE), "sum");
      if (!tensor.is_cpu()) tensor.copy_(host);
    };
  }

 private:
  // Made at the first tensor on a GPU, which every rank has at the same point of the program.
  Nccl* nccl_for(const at::Tensor& tensor) {
    if (tensor.is_cpu() || no_nccl_) return nullptr;
    if (!nccl_) {
      no_nccl_ = !Nccl::available();
      if (no_nccl_) return nullptr;
      Nccl::UniqueId id = rank_ == 0 ? Nccl::unique_id() : Nccl::UniqueId{};
      check_mpi(MPI_Bcast(id.bytes.data(), static_cast<int>(id.bytes.size()), MPI_BYTE, 0, MPI_COMM_WORLD),
                "broadcast");
      nccl_ = std::make_unique<Nccl>(id, rank_, size_, tensor.device());
    }
    return nccl_.get();
  }

  int rank_ = 0, size_ = 1, local_rank_ = 0;
  bool no_nccl_ = false;
  std::unique_ptr<Nccl> nccl_;
};

}  // namespace

std::unique_ptr<Communicator> make_mpi_communicator() { return std::make_unique<MpiCommunicator>(); }

}  // namespace mhla::train
