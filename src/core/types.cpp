// Names of the option enumerations, and sizes of element types.
#include "mhla/types.hpp"

#include <array>

#include "core/names.hpp"

namespace mhla {
namespace {

constexpr std::array<NameEntry<DType>, 4> kDTypes{{{DType::f32, "f32", "float32"},
                                                   {DType::f64, "f64", "float64"},
                                                   {DType::bf16, "bf16", "bfloat16"},
                                                   {DType::f16, "f16", "float16"}}};

constexpr std::array<NameEntry<FeatureMap>, 5> kFeatureMaps{{{FeatureMap::identity, "identity"},
                                                             {FeatureMap::relu, "relu"},
                                                             {FeatureMap::elu_plus_one, "elu+1", "elu-plus-one"},
                                                             {FeatureMap::exp, "exp"},
                                                             {FeatureMap::squared_relu, "squared-relu"}}};

constexpr std::array<NameEntry<Normalizer>, 3> kNormalizers{
    {{Normalizer::none, "none"}, {Normalizer::paper, "paper"}, {Normalizer::authors, "authors"}}};

constexpr std::array<NameEntry<Masking>, 3> kMaskings{
    {{Masking::none, "none"}, {Masking::block_causal, "block-causal"}, {Masking::token_causal, "token-causal"}}};

constexpr std::array<NameEntry<Algorithm>, 3> kAlgorithms{
    {{Algorithm::automatic, "automatic"}, {Algorithm::summary, "summary"}, {Algorithm::dense, "dense"}}};

constexpr std::array<NameEntry<Device>, 2> kDevices{{{Device::cpu, "cpu"}, {Device::cuda, "cuda"}}};

constexpr std::array<NameEntry<Float32Products>, 2> kFloat32Products{
    {{Float32Products::ieee, "ieee"}, {Float32Products::tf32, "tf32"}}};

}  // namespace

std::size_t element_size(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return 4;
    case DType::f64:
      return 8;
    case DType::bf16:
    case DType::f16:
      return 2;
  }
  throw Error("dtype " + std::to_string(static_cast<int>(dtype)) + " is not an element type");
}

DType accumulation_type(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }

std::string_view name(DType value) { return find_name<DType>(kDTypes, value); }
std::string_view name(FeatureMap value) { return find_name<FeatureMap>(kFeatureMaps, value); }
std::string_view name(Normalizer value) { return find_name<Normalizer>(kNormalizers, value); }
std::string_view name(Masking value) { return find_name<Masking>(kMaskings, value); }
std::string_view name(Algorithm value) { return find_name<Algorithm>(kAlgorithms, value); }
std::string_view name(Device value) { return find_name<Device>(kDevices, value); }
std::string_view name(Float32Products value) { return find_name<Float32Products>(kFloat32Products, value); }

DType parse_dtype(std::string_view text) { return parse_name<DType>(kDTypes, "dtype", text); }
FeatureMap parse_feature_map(std::string_view text) {
  return parse_name<FeatureMap>(kFeatureMaps, "feature_map", text);
}
Normalizer parse_normalizer(std::string_view text) { return parse_name<Normalizer>(kNormalizers, "normalizer", text); }
Masking parse_masking(std::string_view text) { return parse_name<Masking>(kMaskings, "masking", text); }
Algorithm parse_algorithm(std::string_view text) { return parse_name<Algorithm>(kAlgorithms, "algorithm", text); }
Device parse_device(std::string_view text) { return parse_name<Device>(kDevices, "device", text); }
Float32Products parse_float32_products(std::string_view text) {
  return parse_name<Float32Products>(kFloat32Products, "float32_products", text);
}

}  // namespace mhla
