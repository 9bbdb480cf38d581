// What every model is, whatever it computes: a torch module made from a config, with hooks for training and for weights
// of other models.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "io/json.hpp"
#include "tensor_io/tensors.hpp"

namespace mhla::models {

using io::named_tensors;
using io::NamedTensors;

struct LoadReport;

// Two names of one layer, as parts of the names of its tensors. A part that begins with a dot stands anywhere in a
// name, others at its beginning.
struct SameLayer {
  std::string_view one, other;
};

// (name, stored tensor) -> the tensor in the shape of the model's parameter of that name, undefined where it cannot be
// brought to it.
using Fit = std::function<at::Tensor(const std::string& name, const at::Tensor& stored)>;

class Model : public torch::nn::Module {
 public:
  // All that is needed to make the model again. Member "model" is its name in the registry.
  virtual io::Json config() const = 0;

  // Whether weight decay applies to the parameter `name`; it never applies to vectors.
  virtual bool decays(const std::string& /*name*/) const { return true; }

  // Brings learned values back to their range. Whoever optimises the model calls it after each step.
  virtual void after_step() {}

  // Names under which other programs store the same layers.
  virtual std::span<const SameLayer> weight_names() const { return {}; }

  // Rewrites stored tensors whose values, not only whose names, other programs lay out differently; `report` is told.
  // `targets` are the tensors of this model.
  virtual void convert(const NamedTensors& /*targets*/, NamedTensors& /*stored*/, LoadReport& /*report*/) const {}

  // For tensors of a model with the config `from`, null where that is not known. Throws an Error where it is no config
  // of a model like this.
  virtual Fit fit_from(const io::Json& /*from*/) const {
    return [](const std::string&, const at::Tensor&) { return at::Tensor(); };
  }
};

}  // namespace mhla::models
