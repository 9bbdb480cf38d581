# MPI, for training with several processes. NCCL needs nothing here: it is found when the program runs.
set(MHLA_MPI AUTO CACHE STRING "Training with several processes: ON, OFF, or AUTO (where MPI is installed)")
set(MPI_CXX_SKIP_MPICXX ON)
if(MHLA_MPI STREQUAL ON)
  find_package(MPI REQUIRED COMPONENTS CXX)
elseif(NOT MHLA_MPI STREQUAL OFF)
  find_package(MPI QUIET COMPONENTS CXX)
endif()

# Of the two sources that define the communicator of several processes, the one that is not compiled.
if(MPI_CXX_FOUND)
  set(MHLA_MPI_LIBRARY MPI::MPI_CXX)
  set(MHLA_LEFT_OUT "${PROJECT_SOURCE_DIR}/src/train/without_mpi.cpp")
else()
  set(MHLA_MPI_LIBRARY "")
  set(MHLA_LEFT_OUT "${PROJECT_SOURCE_DIR}/src/train/communicator_mpi.cpp")
endif()
