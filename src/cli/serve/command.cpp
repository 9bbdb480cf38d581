// `mhla serve`: a language model behind an HTTP server.
#include <fmt/format.h>

#include <chrono>
#include <exception>
#include <future>
#include <iostream>
#include <memory>
#include <thread>

#include "cli/commands.hpp"
#include "cli/serve/http_server.hpp"
#include "cli/support/checks.hpp"
#include "cli/support/device.hpp"
#include "cli/support/machine.hpp"
#include "cli/support/option_group.hpp"
#include "tasks/language/language_model.hpp"
#include "tasks/pretrained.hpp"
#include "train/interrupt.hpp"

namespace mhla::cli {
namespace {

using namespace std::chrono_literals;

constexpr auto kGrace = 5s;  // for answers that are being made when the server is asked to stop
constexpr std::int64_t kMostRows = 4096, kMostWaiting = 1 << 16, kMostBody = std::int64_t{1} << 30,
                       kMostTokens = 1'000'000'000;
constexpr std::size_t kSpareConnections = 16;  // for those that are refused, and for the page

struct Serve {
  std::string model, tokenizer, beyond;
  std::string device = "auto", dtype = "auto", host = "127.0.0.1";
  int port = 8080, threads = 0;
  std::int64_t concurrent = 16, queue = 128, tokens = 4096, body = std::int64_t{1} << 20;
};

tasks::LanguageModel open_model(const Serve& given) {
  const at::Device device = choose_device(given.device);
  tasks::LanguageModel model = tasks::open_language_model(tasks::pretrained_path(given.model, "language"),
                                                          given.tokenizer, device, given.beyond);
  const bool half = given.dtype == "bf16" || (given.dtype == "auto" && device.is_cuda());
  model.model->to(half ? at::kBFloat16 : at::kFloat);
  return model;
}

std::string address_of(const std::string& host, int port) {
  return host.find(':') == std::string::npos ? fmt::format("http://{}:{}", host, port)
                                             : fmt::format("http://[{}]:{}", host, port);
}

int run_serve(const Serve& given) {
  use_threads(given.threads);
  const tasks::LanguageModel model = open_model(given);
  tasks::Scheduler scheduler(model.model, {.rows = given.concurrent,
                                           .waiting = given.queue,
                                           .vocabulary = model.tokenizer->size(),
                                           .end = model.tokenizer->special().end});
  HttpServer server(model, scheduler,
                    {.body = static_cast<std::size_t>(given.body),
                     .connections = static_cast<std::size_t>(given.concurrent + given.queue) + kSpareConnections,
                     .limits = {.tokens = given.tokens, .answers = given.queue}});
  const int port = server.bind(given.host, given.port);
  const train::InterruptGuard interrupts("\nfinishing answers; once more stops at once\n");
  std::future<void> listening = std::async(std::launch::async, [&] { server.listen(); });
  const auto ended_after = [&](std::chrono::milliseconds time) {
    return listening.wait_for(time) != std::future_status::timeout;
  };
  while (!server.listens() && !ended_after(1ms)) {
  }
  std::cout << fmt::format("{} serves {} on {}\n", address_of(given.host, port), model.name,
                           device_name(model.model->output_weight().device()))
            << std::flush;
  while (!train::InterruptGuard::requested() && !ended_after(100ms)) {
  }
  scheduler.finish(kGrace);
  server.stop();
  listening.get();
  return 0;
}

void add_model(CLI::App& command, Serve& given) {
  OptionGroup group(command, "Model");
  group.add_open("--model", given.model, "PATH",
                 "Language model: a .safetensors file or folder of `mhla train language`, or a folder of transformers",
                 "the one in the folder pretrained");
  group.add_open("--tokenizer", given.tokenizer, "PATH", "Its tokenizer, a file or a folder of one",
                 "beside the model");
  group
      .add_open("--beyond", given.beyond, "POLICY", "What MHLA does with more blocks than it was trained for",
                "the model's own")
      ->check(CLI::IsMember({"error", "clamp", "running-mean", "interpolate"}));
  add_device_option(command, given.device)->group("Model");
  group.add("--dtype", given.dtype, "NAME", "Type of weights and activations; auto is bf16 on a GPU, else f32")
      ->check(CLI::IsMember({"auto", "f32", "bf16"}));
  add_threads_option(command, given.threads)->group("Model");
}

void add_server(CLI::App& command, Serve& given) {
  OptionGroup group(command, "Server");
  group.add("--host", given.host, "ADDRESS",
            "Address to listen on; 127.0.0.1 is for this machine alone, 0.0.0.0 for everyone who can reach it");
  group.add("--port", given.port, "N", "Port to listen on; 0: any, which is printed")->check(within(0, 65535));
  group.add("--concurrent", given.concurrent, "N", "Sequences that are answered together")
      ->check(within<std::int64_t>(1, kMostRows));
  group.add("--queue", given.queue, "N", "Sequences that may wait; more are refused")
      ->check(within<std::int64_t>(1, kMostWaiting));
  group.add("--max-tokens", given.tokens, "N", "Tokens of an answer, at most")
      ->check(within<std::int64_t>(1, kMostTokens));
  group.add("--max-body", given.body, "BYTES", "Size of a request, at most")->check(within<std::int64_t>(1, kMostBody));
}

}  // namespace

void add_serve(CLI::App& program, Outcome& outcome) {
  auto given = std::make_shared<Serve>();
  auto* command = program.add_subcommand("serve", "Answer over HTTP with a language model");
  add_server(*command, *given);
  add_model(*command, *given);
  command->callback([given, &outcome] { outcome.exit_code = run_serve(*given); });
}

}  // namespace mhla::cli
