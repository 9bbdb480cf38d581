// A picture depends on its seed, number and class, and on nothing else.
#include "tasks/generate/sampling.hpp"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <set>

#include "mhla/types.hpp"
#include "models/small_generator.hpp"

namespace mhla::tasks {
namespace {

using models::testing::small_generator;

SampleRequest request(std::vector<std::int64_t> classes, Sampler sampler) {
  SampleRequest request;
  request.classes = std::move(classes);
  request.sampler = sampler;
  request.steps = 4;
  request.guidance.scale = 2.0;
  request.seed = 5;
  return request;
}

struct Walk {
  const char* process;
  Sampler sampler;
};

class EverySampler : public ::testing::TestWithParam<Walk> {};

TEST_P(EverySampler, APictureIsTheSameBitsAloneAndAmongOthersOnAnyNumberOfThreads) {
  const auto model = small_generator();
  const auto process = diffusion::make_process(GetParam().process);
  const int threads = at::get_num_threads();
  at::set_num_threads(2);
  const at::Tensor together = sample(*model, *process, request({0, 1, 2}, GetParam().sampler));
  EXPECT_EQ(together.sizes(), (std::vector<std::int64_t>{3, 3, 8, 8}));
  EXPECT_TRUE(together.isfinite().all().item<bool>());
  EXPECT_TRUE(torch::equal(sample(*model, *process, request({0, 1, 2}, GetParam().sampler)), together));
  for (const int count : {1, 2}) {
    at::set_num_threads(count);
    SampleRequest alone = request({1}, GetParam().sampler);
    alone.first = 1;
    EXPECT_TRUE(torch::equal(sample(*model, *process, alone)[0], together[1])) << count << " threads";
    EXPECT_TRUE(torch::equal(sample(*model, *process, request({0, 1, 2}, GetParam().sampler)), together)) << count;
  }
  at::set_num_threads(threads);
}

INSTANTIATE_TEST_SUITE_P(Samplers, EverySampler,
                         ::testing::Values(Walk{"linear", Sampler::ddpm}, Walk{"cosine", Sampler::ddim},
                                           Walk{"linear", Sampler::dpmpp}, Walk{"linear", Sampler::unipc},
                                           Walk{"flow", Sampler::euler}, Walk{"flow", Sampler::dpmpp},
                                           Walk{"flow", Sampler::unipc}),
                         [](const auto& info) {
                           const Sampler sampler = info.param.sampler;
                           return std::string(info.param.process) + "_" +
                                  (sampler == Sampler::dpmpp ? "dpmpp" : std::string(name_of(sampler)));
                         });

TEST(Sampling, SeedAndClassChangeThePicture) {
  const auto model = small_generator();
  const auto process = diffusion::make_process("linear");
  const at::Tensor picture = sample(*model, *process, request({0}, Sampler::ddim));
  SampleRequest other = request({0}, Sampler::ddim);
  other.seed = 6;
  EXPECT_FALSE(torch::equal(sample(*model, *process, other), picture));
  EXPECT_FALSE(torch::equal(sample(*model, *process, request({3}, Sampler::ddim)), picture));
}

TEST(Sampling, PicturesMayHaveAnyNumbers) {
  const auto model = small_generator();
  const auto process = diffusion::make_process("linear");
  const at::Tensor in_order = sample(*model, *process, request({2, 2, 2}, Sampler::ddim));
  SampleRequest chosen = request({2, 2}, Sampler::ddim);
  chosen.numbers = {2, 0};
  const at::Tensor pictures = sample(*model, *process, chosen);
  EXPECT_TRUE(torch::equal(pictures[0], in_order[2]));
  EXPECT_TRUE(torch::equal(pictures[1], in_order[0]));
}

TEST(Sampling, EveryStepOfEveryPictureIsShown) {
  const auto model = small_generator();
  std::set<std::pair<std::int64_t, std::int64_t>> seen;
  sample(*model, *diffusion::make_process("linear"), request({0, 1, 2}, Sampler::dpmpp), [&](const Drawing& drawing) {
    EXPECT_EQ(drawing.steps, 4);
    EXPECT_EQ(drawing.x_0.sizes(), (std::vector<std::int64_t>{3, 8, 8}));
    seen.emplace(drawing.picture, drawing.step);
  });
  EXPECT_EQ(seen.size(), 12U);
}

TEST(Sampling, ImpossibleRequestsSayWhatIsAllowed) {
  const auto model = small_generator();
  auto process = diffusion::make_process("linear");
  const auto message = [&](const SampleRequest& wrong) -> std::string {
    try {
      sample(*model, *process, wrong);
    } catch (const Error& error) {
      return error.what();
    }
    return "nothing thrown";
  };
  EXPECT_EQ(message(request({5}, Sampler::ddim)), "class is 5; it may be 0 to 3, or 4 for none");
  SampleRequest wrong = request({0}, Sampler::ddpm);
  wrong.steps = 1;
  EXPECT_EQ(message(wrong), "steps is 1; it may be 2 to 1000");
  wrong = request({0}, Sampler::ddim);
  wrong.steps = 0;
  EXPECT_EQ(message(wrong), "steps is 0; it may be 1 to 1000");
  wrong = request({0}, Sampler::ddim);
  wrong.size = {9, 8};
  EXPECT_EQ(message(wrong), "size is 9 x 8; height and width must be multiples of the patch, 2");
  wrong = request({0, 1}, Sampler::ddim);
  wrong.numbers = {7};
  EXPECT_EQ(message(wrong), "numbers has 1 entries for 2 classes");
  wrong = request({0}, Sampler::ddim);
  wrong.guidance.from = 0.7;
  wrong.guidance.to = 0.3;
  EXPECT_NE(message(wrong).find("guidance interval"), std::string::npos);
  EXPECT_EQ(message(request({0}, Sampler::euler)),
            "sampler is euler; it may be ddpm, ddim, dpm++ or unipc, since the model predicts noise");
  process = diffusion::make_process("flow");
  EXPECT_EQ(message(request({0}, Sampler::ddim)),
            "sampler is ddim; it may be euler, dpm++ or unipc, since the model predicts the velocity of a flow");
  EXPECT_THROW(parse_sampler("heun"), Error);
}

}  // namespace
}  // namespace mhla::tasks
