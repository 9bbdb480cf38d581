// How a process can tell that a launcher started it: by what mpirun (Open MPI), PMIx and PMI leave in the environment.
#include <array>
#include <cstdlib>

#include "train/communicator_mpi.hpp"

namespace mhla::train {

bool launched_by_mpi() {
  for (const char* name : std::array{"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK"})
    if (std::getenv(name) != nullptr) return true;
  return false;
}

}  // namespace mhla::train
