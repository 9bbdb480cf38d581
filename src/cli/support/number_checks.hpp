// Checks of numbers without an upper limit. CLI11 has its own, whose messages spell out the largest double.
#pragma once

#include <CLI/CLI.hpp>
#include <cmath>
#include <string>

namespace mhla::cli {

namespace detail {

template <typename Allows>
CLI::Validator number_check(const char* name, const char* must, Allows allows) {
  const auto check = [must, allows](const std::string& text) -> std::string {
    double value = 0.0;
    if (CLI::detail::lexical_cast(text, value) && std::isfinite(value) && allows(value)) return {};
    return "it is " + text + "; it must be " + must;
  };
  return CLI::Validator(check, name);
}

}  // namespace detail

inline const CLI::Validator kPositive =
    detail::number_check("POSITIVE", "a number above 0", [](double x) { return x > 0.0; });
inline const CLI::Validator kNonNegative =
    detail::number_check("NONNEGATIVE", "a number from 0 on", [](double x) { return x >= 0.0; });

}  // namespace mhla::cli
