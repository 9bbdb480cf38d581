// Why a run failed, in a line a user can read.
#pragma once

#include <exception>
#include <string>

namespace mhla::cli {

// torch's errors without the places in its sources; memory that could not be had with its size where that is known.
std::string failure_message(const std::exception& error);

}  // namespace mhla::cli
