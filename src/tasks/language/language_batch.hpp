// Windows of tokens as a model takes them: what it reads and what it has to say next.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <optional>

#include "data/tokens/windows.hpp"
#include "models/lm/lm.hpp"

namespace mhla::tasks {

struct LanguageBatch {
  at::Tensor ids, labels;           // int64 [rows, length - 1] on the device; labels are one token further
  models::Lm::Documents documents;  // empty: each row is one
};

// The copy to a GPU does not wait for it. `begin`: the token that begins a document; with it, documents of a window do
// not see each other. The last token of a document is still asked for the token that begins the next one.
LanguageBatch language_batch(const data::TokenBatch& windows, std::optional<std::int64_t> begin, at::Device device);

}  // namespace mhla::tasks
