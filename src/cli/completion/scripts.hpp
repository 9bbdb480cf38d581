// Completion scripts of the shells, for all commands, options and allowed values.
#pragma once

#include <string>

#include "cli/describe/description.hpp"

namespace mhla::cli {

namespace bash {
std::string completion(const CommandDescription& program);
}
namespace zsh {
std::string completion(const CommandDescription& program);
}
namespace fish {
std::string completion(const CommandDescription& program);
}

}  // namespace mhla::cli
