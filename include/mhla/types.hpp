// The vocabulary of the operator: element types, options and the error every function throws.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

namespace mhla {

// Thrown for every bad argument. The message names the argument, what it was and what it may be.
class Error : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

// Element type of q, k, v, o and their gradients. Mixing matrices and states are in the accumulation type:
// double for f64, float for all others.
enum class DType { f32, f64, bf16, f16 };

// phi, applied to every element of q and k; `feature_eps` is added to the result.
enum class FeatureMap { identity, relu, elu_plus_one, exp, squared_relu };

// Denominator of the output. `paper`: q_t . z~_i. `authors`: the authors' code, which mixes q_b . z_b over blocks at
// equal in-block position (docs/operator.md).
enum class Normalizer { none, paper, authors };

// Which tokens a query may see. `block_causal`: all tokens of its own and earlier blocks; `token_causal`: itself and
// earlier tokens.
enum class Masking { none, block_causal, token_causal };

// How the result is computed: through block summaries (linear in tokens) or as a weighted token-by-token product
// (quadratic, better for few tokens in many blocks). `automatic` lets plan() decide by its cost model.
enum class Algorithm { automatic, summary, dense };

// Where the tensors are and the operator runs.
enum class Device { cpu, cuda };

// How products of f32 elements are made on CUDA: in full, or on tensor cores, which round the factors to 10 bits of
// mantissa. The CPU is always `ieee`.
enum class Float32Products { ieee, tf32 };

std::size_t element_size(DType dtype);
DType accumulation_type(DType dtype);

std::string_view name(DType value);
std::string_view name(FeatureMap value);
std::string_view name(Normalizer value);
std::string_view name(Masking value);
std::string_view name(Algorithm value);
std::string_view name(Device value);
std::string_view name(Float32Products value);

// Inverse of name(); throws an Error that lists the names there are.
DType parse_dtype(std::string_view text);
FeatureMap parse_feature_map(std::string_view text);
Normalizer parse_normalizer(std::string_view text);
Masking parse_masking(std::string_view text);
Algorithm parse_algorithm(std::string_view text);
Device parse_device(std::string_view text);
Float32Products parse_float32_products(std::string_view text);

}  // namespace mhla
