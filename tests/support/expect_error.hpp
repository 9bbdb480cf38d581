// Checks that a call is refused with a message that names what it should.
#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>
#include <string_view>

#include "mhla/types.hpp"

namespace mhla {

template <typename Call>
void expect_error(Call&& call, std::initializer_list<std::string_view> mentions) {
  try {
    call();
  } catch (const Error& error) {
    const std::string message = error.what();
    for (const std::string_view text : mentions)
      EXPECT_NE(message.find(text), std::string::npos) << "'" << message << "' does not mention '" << text << "'";
    return;
  }
  ADD_FAILURE() << "no Error was thrown";
}

}  // namespace mhla
