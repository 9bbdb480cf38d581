// Failures of torch and of memory, in one line.
#include "cli/failure.hpp"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <new>

namespace mhla::cli {
namespace {

std::string message(const std::function<void()>& work) {
  try {
    work();
  } catch (const std::exception& error) {
    return failure_message(error);
  }
  return "no failure";
}

TEST(FailureMessage, NamesMemoryThatCannotBeHad) {
  EXPECT_EQ(message([] { torch::empty({std::int64_t{1} << 45}); }),
            "out of memory: 140737488355328 bytes cannot be allocated");
  EXPECT_EQ(message([] { throw std::bad_alloc(); }), "out of memory: the memory that is needed cannot be allocated");
  EXPECT_EQ(message([] { std::vector<char>(~std::size_t{0}); }), message([] { throw std::bad_alloc(); }));
}

TEST(FailureMessage, HasNoPlacesInTorchsSources) {
  const std::string said = message([] { torch::ones({2, 3}).mm(torch::ones({2, 3})); });
  EXPECT_NE(said.find("cannot be multiplied"), std::string::npos) << said;
  EXPECT_EQ(said.find('\n'), std::string::npos) << said;
}

TEST(FailureMessage, KeepsOtherMessagesWhole) {
  EXPECT_EQ(message([] { throw std::runtime_error("one\ntwo"); }), "one\ntwo");
}

}  // namespace
}  // namespace mhla::cli
