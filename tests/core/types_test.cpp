// Names of options: what is printed can be typed, and what cannot be understood is answered with what can.
#include "mhla/types.hpp"

#include <gtest/gtest.h>

#include "mhla/mixing.hpp"
#include "mhla/version.hpp"
#include "support/expect_error.hpp"

namespace mhla {
namespace {

TEST(Names, EveryPrintedNameParsesBackToItsValue) {
  for (const DType value : {DType::f32, DType::f64, DType::bf16, DType::f16})
    EXPECT_EQ(parse_dtype(name(value)), value);
  for (const FeatureMap value :
       {FeatureMap::identity, FeatureMap::relu, FeatureMap::elu_plus_one, FeatureMap::exp, FeatureMap::squared_relu})
    EXPECT_EQ(parse_feature_map(name(value)), value);
  for (const Normalizer value : {Normalizer::none, Normalizer::paper, Normalizer::authors})
    EXPECT_EQ(parse_normalizer(name(value)), value);
  for (const Masking value : {Masking::none, Masking::block_causal, Masking::token_causal})
    EXPECT_EQ(parse_masking(name(value)), value);
  for (const Algorithm value : {Algorithm::automatic, Algorithm::summary, Algorithm::dense})
    EXPECT_EQ(parse_algorithm(name(value)), value);
  for (const Device value : {Device::cpu, Device::cuda}) EXPECT_EQ(parse_device(name(value)), value);
  for (const Float32Products value : {Float32Products::ieee, Float32Products::tf32})
    EXPECT_EQ(parse_float32_products(name(value)), value);
  for (const MixingInit value :
       {MixingInit::paper, MixingInit::linear, MixingInit::cos, MixingInit::exp, MixingInit::gaussian,
        MixingInit::local, MixingInit::uniform, MixingInit::running_mean, MixingInit::constant})
    EXPECT_EQ(parse_mixing_init(name(value)), value);
  for (const BeyondTrained value :
       {BeyondTrained::error, BeyondTrained::clamp, BeyondTrained::running_mean, BeyondTrained::interpolate})
    EXPECT_EQ(parse_beyond_trained(name(value)), value);
}

TEST(Names, DashesAndUnderscoresAreTheSame) {
  EXPECT_EQ(parse_masking("token_causal"), Masking::token_causal);
  EXPECT_EQ(parse_masking("token-causal"), Masking::token_causal);
  EXPECT_EQ(parse_feature_map("elu_plus_one"), FeatureMap::elu_plus_one);
  EXPECT_EQ(parse_dtype("bfloat16"), DType::bf16);
}

TEST(Names, AnUnknownNameIsAnsweredWithTheValidOnes) {
  expect_error([] { parse_dtype("int8"); }, {"dtype", "'int8'", "f32, f64, bf16, f16"});
  expect_error([] { parse_feature_map(""); }, {"feature_map", "''", "identity, relu, elu+1, exp, squared-relu"});
  expect_error([] { parse_normalizer("Paper"); }, {"normalizer", "none, paper, authors"});
  expect_error([] { parse_masking("causal"); }, {"masking", "none, block-causal, token-causal"});
  expect_error([] { parse_algorithm("fast"); }, {"algorithm", "automatic, summary, dense"});
  expect_error([] { parse_device("gpu"); }, {"device", "'gpu'", "cpu, cuda"});
  expect_error([] { parse_float32_products("fast"); }, {"float32_products", "ieee, tf32"});
  expect_error([] { parse_mixing_init("zeros"); }, {"mixing_init", "paper", "constant"});
  expect_error([] { parse_beyond_trained("ignore"); }, {"beyond", "error, clamp, running-mean, interpolate"});
}

TEST(ElementTypes, StatesAreInFloatExceptForDouble) {
  EXPECT_EQ(element_size(DType::f32), 4U);
  EXPECT_EQ(element_size(DType::f64), 8U);
  EXPECT_EQ(element_size(DType::bf16), 2U);
  EXPECT_EQ(element_size(DType::f16), 2U);
  EXPECT_EQ(accumulation_type(DType::f64), DType::f64);
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) EXPECT_EQ(accumulation_type(dtype), DType::f32);
}

TEST(Version, HasThreeParts) {
  const std::string text(version());
  EXPECT_EQ(std::count(text.begin(), text.end(), '.'), 2) << text;
}

}  // namespace
}  // namespace mhla
