// Messages of exceptions.
#include "cli/failure.hpp"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <new>
#include <stdexcept>

namespace mhla::cli {
namespace {

// "123 bytes" or "2.00 GiB" of a message "... tried to allocate 123 bytes. ..."
std::string allocation(const std::string& message) {
  constexpr std::string_view kBefore = "ried to allocate ";
  const std::size_t place = message.find(kBefore);
  if (place == std::string::npos) return "the memory that is needed";
  const std::size_t begin = place + kBefore.size();
  return message.substr(begin, message.find(". ", begin) - begin);
}

std::string out_of_memory(const std::string& message) {
  return fmt::format("out of memory: {} cannot be allocated", allocation(message));
}

}  // namespace

std::string failure_message(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr || dynamic_cast<const std::length_error*>(&error))
    return out_of_memory("");
  const auto* const torchs = dynamic_cast<const c10::Error*>(&error);
  if (torchs == nullptr) return error.what();
  const std::string message = torchs->what_without_backtrace();
  if (message.find("ried to allocate ") != std::string::npos) return out_of_memory(message);
  return message.substr(0, message.find('\n'));
}

}  // namespace mhla::cli
