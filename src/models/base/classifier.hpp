// Image classifiers with softmax, linear attention or MHLA in every layer: what all of them take and give.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "io/json.hpp"
#include "models/base/mixing_parameters.hpp"
#include "models/base/model.hpp"
#include "nn/attention.hpp"
#include "nn/grid.hpp"

namespace mhla::models {

struct ClassifierOptions {
  std::string model = "deit_tiny";                // one of classifier_names()
  std::string preset = "paper";                   // authors: the authors' modules to the bit; paper: as published
  std::vector<std::string> attention = {"mhla"};  // softmax|linear|mhla; one for all layers or one per layer;
                                                  // vlt: one is for the first two stages, the others are softmax
  std::vector<std::int64_t> image_size = {224, 224};
  std::int64_t patch = 16, classes = 1000;
  std::vector<std::int64_t> blocks = {4, 4};     // number of blocks per axis (M = product); vlt: of its second stage,
                                                 // the first has 7 for every 4
  std::int64_t width = 0, depth = 0, heads = 0;  // 0: the model's own
  bool lepe = true;                              // a 5x5 depthwise convolution on v, added to the attention's output
  std::string mixing_init = "paper";             // how the mixing matrices start: the names of MixingInit
  double mixing_sigma = 3.0;                     // of mixing_init "exp"
  std::string mixing = "static";                 // input: moved by what blocks hold (nn/input_mixing.hpp); not for vlt
  bool mixing_frozen = false;
  double drop_path = 0.0;
  bool recompute = false;  // run each block again in the backward pass instead of keeping its activations

  bool operator==(const ClassifierOptions&) const = default;
};

// Members that are missing keep their defaults; one that is unknown or of the wrong type is an Error that names it.
void to_json(io::Json& json, const ClassifierOptions& options);
void from_json(const io::Json& json, ClassifierOptions& options);

// Throws an Error that names the first option no model can have.
void check_classifier_options(const ClassifierOptions& options);

class Classifier : public Model {
 public:
  using Config = ClassifierOptions;

  explicit Classifier(ClassifierOptions options);  // checks them

  // [B, 3, H, W] normalised -> logits [B, classes]. Images need not have the size of the options.
  at::Tensor forward(const at::Tensor& images) { return logits(pooled_features(images)); }

  // The two parts of it: one vector per image, [B, F], and what the last layer makes of that.
  virtual at::Tensor pooled_features(const at::Tensor& images) = 0;
  virtual at::Tensor logits(const at::Tensor& pooled_features) = 0;

  virtual std::int64_t layers() const = 0;
  virtual nn::Grid grid(std::int64_t layer) const = 0;  // its tokens at the options' image size

  // The pixels under that grid, and where on them an image of the options' size lies: models add a border (or cut one
  // off) where tokens do not cover an image exactly.
  struct Canvas {
    std::int64_t height = 0, width = 0, top = 0, left = 0;
  };
  virtual Canvas canvas(std::int64_t layer) const = 0;

  // The blocks a layer with a mixing matrix has on that grid.
  virtual Partition partition(std::int64_t layer) const { return nn::at_most(grid(layer), options.blocks); }

  // The mixing matrix of a layer, [M, M, 1, 1]; undefined where it has none.
  virtual at::Tensor mixing_parameter(std::int64_t layer) = 0;
  std::vector<at::Tensor> mixing_matrices();  // views [M, M] of the learned ones

  // How much tokens look at each other in one layer: [B, heads, N, N], rows as of nn::Attention::weights.
  virtual at::Tensor attention_matrix(const at::Tensor& images, std::int64_t layer) = 0;

  io::Json config() const override { return options; }
  bool decays(const std::string& name) const override;  // not mixing matrices and position embeddings
  void after_step() override;                           // mixing matrices stay in [0, 1]
  Fit fit_from(const io::Json& from) const override;

  const ClassifierOptions options;

 protected:
  // A stored tensor of another shape (made for `from`, where that is known) in the shape of parameter `name`: position
  // embeddings and mixing matrices resized. Undefined where nothing can be done.
  virtual at::Tensor fitted(const std::string& name, const at::Tensor& stored,
                            const std::optional<ClassifierOptions>& from) const = 0;

  static void check_images(const at::Tensor& images);  // their shape
  void check_layer(std::int64_t layer) const;
};

}  // namespace mhla::models
