// Communication through MPI, where the build has it.
#pragma once

#include <memory>

#include "train/communicator.hpp"

namespace mhla::train {

bool launched_by_mpi();  // by mpirun or srun, as one of at least one
std::unique_ptr<Communicator> make_mpi_communicator();

// Throws an Error where a launcher announced another number of processes than have found each other.
void check_announced_size(int found);

}  // namespace mhla::train
