// Checks of option values, with the words help and docs show for them.
#pragma once

#include <fmt/format.h>

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

// Without an upper limit. CLI11 has its own, whose messages spell out the largest double.
inline const CLI::Validator kPositive =
    detail::number_check("above 0", "a number above 0", [](double x) { return x > 0.0; });
inline const CLI::Validator kNonNegative =
    detail::number_check("0 or more", "a number from 0 on", [](double x) { return x >= 0.0; });

template <typename Number>
CLI::Validator within(Number low, Number high) {
  return CLI::Range(low, high).description(fmt::format("{} to {}", low, high));
}

// That it is a file is said by the name of the value.
inline CLI::Validator existing_file() { return CLI::Validator(CLI::ExistingFile).description(""); }
inline CLI::Validator existing_path() { return CLI::Validator(CLI::ExistingPath).description(""); }

// Allowed values that are only shown: the command checks them itself.
inline CLI::Validator shown_choices(const std::vector<std::string>& choices) {
  return CLI::Validator([](const std::string&) { return std::string(); }, CLI::detail::generate_set(choices));
}

}  // namespace mhla::cli
