// The version of the library, as the build was configured.
#include "mhla/version.hpp"

namespace mhla {

std::string_view version() { return MHLA_VERSION; }

}  // namespace mhla
