// Errors of the library as Python knows them.
#pragma once

#include <torch/torch.h>

#include "mhla/types.hpp"

namespace mhla {

// Errors that name an argument are Python's ValueError.
template <typename Call>
auto with_value_errors(const Call& call) {
  try {
    return call();
  } catch (const Error& error) {
    TORCH_CHECK_VALUE(false, error.what());
  }
}

}  // namespace mhla
