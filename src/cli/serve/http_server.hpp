// The server: its paths, its limits and a line in the log for every request.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "cli/serve/completion_request.hpp"
#include "tasks/language/scheduler.hpp"

namespace mhla::cli {

struct HttpOptions {
  std::size_t body = std::size_t{1} << 20;  // bytes
  std::size_t connections = 64;             // at the same time; others wait
  ServeLimits limits{};
};

class HttpServer {
 public:
  // Both outlive it.
  HttpServer(const tasks::LanguageModel& model, tasks::Scheduler& scheduler, const HttpOptions& options);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // Returns the port; 0 asks for any. Throws an Error where it is not to be had.
  int bind(const std::string& host, int port);
  void listen();  // until stop()
  bool listens() const;
  void stop();  // answers that have ended are sent before; needs listens()

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace mhla::cli
