// Builds without MPI: several processes started together would each train alone and overwrite each other's files.
#include "mhla/types.hpp"
#include "train/communicator_mpi.hpp"

namespace mhla::train {

std::unique_ptr<Communicator> make_mpi_communicator() {
  throw Error(
      "started by mpirun or srun, but this build has no MPI; install it (Debian: libopenmpi-dev) and build again");
}

}  // namespace mhla::train
