// Workspaces in device memory.
#pragma once

#include "core/workspace.hpp"

namespace mhla::cuda {

using Workspace = AlignedWorkspace<256>;

}  // namespace mhla::cuda
