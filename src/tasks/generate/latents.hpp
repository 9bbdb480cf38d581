// Latents of pictures, computed ahead: a folder with a split per folder, or the authors' folder of NumPy files.
//
//   FOLDER/train/latents-00000.safetensors   what `mhla encode` writes: "latents" [n, 2, C, H, W], each picture and its
//   FOLDER/val/...                           mirror image, times the scale; "labels" int64 [n]; metadata
//                                            "mhla.latents": {"classes": [...], "scale": 0.18215}
//   FOLDER/*_features/*.npy                  of each picture [2, C, H, W] or [1, C, H, W], and in
//   FOLDER/*_labels/*.npy                    a file of the same name its class, int64 [1]
#pragma once

#include <filesystem>

#include "tasks/generate/examples.hpp"

namespace mhla::tasks {

bool holds_latents(const std::filesystem::path& data);

TrainingExamples open_latents(const TrainGenerateOptions& options, const GenerateRecipe& recipe,
                              const train::Communicator& communicator);

}  // namespace mhla::tasks
