// Workspaces of the CPU: pieces begin on cache lines.
#pragma once

#include "core/workspace.hpp"
#include "cpu/kernels.hpp"

namespace mhla::cpu {

using Workspace = AlignedWorkspace<kLineBytes>;

}  // namespace mhla::cpu
