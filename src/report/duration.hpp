// Times for people.
#pragma once

#include <string>

namespace mhla::report {

std::string duration(double seconds);  // "42 s", "3 min 05 s", "2 h 10 min"

}  // namespace mhla::report
