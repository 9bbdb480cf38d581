// How a process can tell that a launcher started it, and as one of how many: by what mpirun (Open MPI), PMIx, PMI and
// Slurm leave in the environment.
#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "mhla/types.hpp"
#include "train/communicator_mpi.hpp"

namespace mhla::train {
namespace {

struct Announced {
  const char* variable;
  int size;
};

// By the innermost launcher: mpirun may itself have been started by srun. SLURM_NTASKS says nothing, as a batch script
// has it before anything is launched; SLURM_STEP_NUM_TASKS is of srun alone.
std::optional<Announced> announced() {
  for (const char* name : std::array{"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"}) {
    const char* const value = std::getenv(name);
    if (value == nullptr) continue;
    const std::string_view text = value;
    int size = 0;
    if (std::from_chars(text.data(), text.data() + text.size(), size).ec == std::errc()) return Announced{name, size};
  }
  return std::nullopt;
}

}  // namespace

bool launched_by_mpi() {
  for (const char* name : std::array{"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK"})
    if (std::getenv(name) != nullptr) return true;
  return false;
}

void check_announced_size(int found) {
  const auto launcher = announced();
  if (!launcher || launcher->size == found) return;
  throw Error(fmt::format(
      "the launcher announced {} processes ({}), but MPI found {}: they would train apart and overwrite each "
      "other's files; start them with the mpirun of the MPI this program was built with, or with `srun "
      "--mpi=pmix` where that MPI supports PMIx",
      launcher->size, launcher->variable, found));
}

}  // namespace mhla::train
