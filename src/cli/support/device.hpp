// The device a model is trained or evaluated on.
#pragma once

#include <torch/torch.h>

#include <CLI/CLI.hpp>
#include <string>

namespace mhla::cli {

CLI::Option* add_device_option(CLI::App& command, std::string& device);       // auto, cpu or cuda
CLI::Option* add_cpu_or_cuda_option(CLI::App& command, std::string& device);  // where nothing is chosen for the user

// auto: a GPU where torch has one. Of several processes on one machine each takes its own.
at::Device choose_device(const std::string& device, int local_rank = 0);

CLI::Option* add_amp_option(CLI::App& command, std::string& amp);

std::string device_name(at::Device device);  // "NVIDIA H200, ...", or the CPU's with its threads

bool uses_bf16(const std::string& amp, at::Device device);  // amp: auto, bf16 or none

}  // namespace mhla::cli
