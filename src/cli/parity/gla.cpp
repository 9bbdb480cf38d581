// Parity of gated linear attention.
#include "nn/gla.hpp"

#include <string_view>
#include <utility>

#include "cli/parity/case.hpp"

namespace mhla::cli::parity {

Outputs run_gla_op(const Case& parity_case) {
  constexpr std::string_view kScale = "Dk^-0.5", kLayout = "batch, tokens, heads, width";
  for (const auto& [key, known] : {std::pair{"scale", kScale}, {"layout", kLayout}})
    if (parity_case.get<std::string>(key) != known)
      parity_case.fail(fmt::format("config \"{}\" is not \"{}\"", key, known));
  const auto [o, state] = nn::gla(parity_case.tensor("in/q"), parity_case.tensor("in/k"), parity_case.tensor("in/v"),
                                  parity_case.tensor("in/log_decay"));
  return {{"o", o}, {"state", state}};
}

}  // namespace mhla::cli::parity
