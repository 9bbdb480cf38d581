// Checks of option values, with the words help and docs show for them. Every option that takes numbers has one: CLI11
// by itself takes -1 for a large number, 010 for eight, and nothing for zero.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <cmath>
#include <concepts>
#include <optional>
#include <string>
#include <string_view>

namespace mhla::cli {

// The whole text as one finite decimal number; whole numbers have digits alone, without zeros in front.
template <typename Number>
std::optional<Number> read_number(std::string_view text) {
  Number value{};
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  if constexpr (std::floating_point<Number>) {
    if (!std::isfinite(value)) return std::nullopt;
  } else if (text != fmt::format("{}", value)) {
    return std::nullopt;
  }
  return value;
}

namespace detail {

// `limits` is for help and docs, "1 or more"; `must` for the message, "1 or more" or "above 0".
template <typename Number, typename Allows>
CLI::Validator number_check(std::string limits, const std::string& must, Allows allows) {
  const std::string kind = std::floating_point<Number> ? "a number" : "an integer";
  const auto check = [kind, must, allows](const std::string& text) -> std::string {
    const std::optional<Number> value = read_number<Number>(text);
    return value && allows(*value) ? "" : fmt::format("it is \"{}\"; it must be {} {}", text, kind, must);
  };
  return CLI::Validator(check, std::move(limits));
}

}  // namespace detail

// The type of the limits says what is asked for: within(1, 9) takes integers alone, within(0.0, 1.0) any number.
template <typename Number>
CLI::Validator within(Number low, Number high) {
  return detail::number_check<Number>(fmt::format("{} to {}", low, high), fmt::format("from {} to {}", low, high),
                                      [=](Number value) { return value >= low && value <= high; });
}

template <typename Number>
CLI::Validator at_least(Number low) {
  const std::string limits = fmt::format("{} or more", low);
  return detail::number_check<Number>(limits, "of " + limits, [=](Number value) { return value >= low; });
}

inline CLI::Validator above_zero() {
  return detail::number_check<double>("above 0", "above 0", [](double value) { return value > 0.0; });
}

// That it is a file is said by the name of the value.
inline CLI::Validator existing_file() { return CLI::Validator(CLI::ExistingFile).description(""); }
inline CLI::Validator existing_path() { return CLI::Validator(CLI::ExistingPath).description(""); }

// Allowed values that are only shown: the command checks them itself.
inline CLI::Validator shown_choices(const std::vector<std::string>& choices) {
  return CLI::Validator([](const std::string&) { return std::string(); }, CLI::detail::generate_set(choices));
}

}  // namespace mhla::cli
