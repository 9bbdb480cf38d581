// Communication through MPI, where the build has it.
#pragma once

#include <memory>

#include "train/communicator.hpp"

namespace mhla::train {

bool launched_by_mpi();  // by mpirun or srun, as one of at least one
std::unique_ptr<Communicator> make_mpi_communicator();

}  // namespace mhla::train
