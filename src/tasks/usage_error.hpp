// Wrong settings of a task.
#pragma once

#include "mhla/types.hpp"

namespace mhla::tasks {

// A wrong argument, as opposed to a failed run. The message names it as the command line does.
class UsageError : public Error {
 public:
  using Error::Error;
};

}  // namespace mhla::tasks
