// Class-conditional image generators: networks that predict the noise in a noised picture.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "io/json.hpp"
#include "models/base/model.hpp"
#include "nn/attention.hpp"

namespace mhla::models {

struct GeneratorOptions {
  std::string model = "dit_s2";               // one of generator_names()
  std::string preset = "paper";               // authors: the authors' modules to the bit; paper: as published
  std::vector<std::string> attention = {};    // one for all layers or one per layer; empty: the first of the family's,
                                              // dit: mhla|softmax|linear; dig: gla|mhla
  std::vector<std::int64_t> size = {32, 32};  // height and width of what it draws: pixels, or latents
  std::int64_t channels = 4, classes = 1000;
  std::vector<std::int64_t> blocks = {4, 4};                // number of blocks per axis (M = product)
  std::int64_t patch = 0, width = 0, depth = 0, heads = 0;  // 0: the model's own
  bool lepe = false;             // a 3x3 depthwise convolution of v, added to the attention's output; authors: always
  bool cpe = false;              // a 3x3 depthwise convolution after every block; dig: always
  bool gate = false;             // silu(a linear layer of the input) multiplies the attention's output; dig: always
  bool qk_norm = false;          // RMSNorm of q and k
  bool learned_variance = true;  // twice the channels: noise, and the variance of a reverse step
  std::string mixing_init = "paper";  // how the mixing matrices start: the names of MixingInit
  double mixing_sigma = 3.0;          // of mixing_init "exp"
  std::string mixing = "static";      // input: moved by what blocks hold (nn/input_mixing.hpp)
  bool mixing_frozen = false;
  bool recompute = false;  // run each block again in the backward pass instead of keeping its activations

  bool operator==(const GeneratorOptions&) const = default;
};

// Members that are missing keep their defaults; one that is unknown or of the wrong type is an Error that names it.
void to_json(io::Json& json, const GeneratorOptions& options);
void from_json(const io::Json& json, GeneratorOptions& options);

// Throws an Error that names the first option no model can have. What `attention` may be is up to the family.
void check_generator_options(const GeneratorOptions& options);

class Generator : public Model {
 public:
  using Config = GeneratorOptions;

  explicit Generator(GeneratorOptions options);  // checks them

  // x: [B, channels, H, W]; times t: [B]; y: int64 [B], a class or null_class(). Returns [B, output_channels(), H, W].
  // Pictures need not have the size of the options; height and width must be multiples of the patch.
  virtual at::Tensor forward(const at::Tensor& x, const at::Tensor& t, const at::Tensor& y) = 0;

  // Classifier-free guidance on two equal halves, the second with null_class(): the first half of x serves both, both
  // get the guided noise, and the variances stay.
  at::Tensor forward_with_cfg(const at::Tensor& x, const at::Tensor& t, const at::Tensor& y, double scale);

  std::int64_t null_class() const { return options.classes; }
  std::int64_t output_channels() const { return (options.learned_variance ? 2 : 1) * options.channels; }

  virtual std::int64_t patch() const = 0;                   // side of a patch: heights and widths are multiples of it
  virtual std::vector<at::Tensor> mixing_parameters() = 0;  // [M, M, 1, 1], of the layers that have one

  io::Json config() const override { return options; }
  bool decays(const std::string& name) const override;  // not mixing matrices
  void after_step() override;                           // mixing matrices stay in [0, 1]
  Fit fit_from(const io::Json& from) const override;

  const GeneratorOptions options;

 protected:
  // As Classifier::fitted.
  virtual at::Tensor fitted(const std::string& name, const at::Tensor& stored,
                            const std::optional<GeneratorOptions>& from) const = 0;

  void check_inputs(const at::Tensor& x, const at::Tensor& t, const at::Tensor& y, std::int64_t patch) const;
};

}  // namespace mhla::models
