// cpp-httplib, one thread for each connection. Compiled by itself: its header brings those of OpenSSL.
#include "cli/serve/http_server.hpp"

#include <fmt/format.h>
#include <httplib.h>

#include <chrono>
#include <condition_variable>
#include <ctime>
#include <iostream>
#include <mutex>

#include "cli/serve/completion.hpp"
#include "cli/serve/page.hpp"
#include "mhla/types.hpp"

namespace mhla::cli {
namespace {

using httplib::Request;
using httplib::Response;
using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr const char* kJson = "application/json";
constexpr const char* kCompletions = "/v1/completions";
constexpr const char* kModels = "/v1/models";
constexpr auto kLook = 100ms;      // how often it is looked whether the client is still there
constexpr auto kLongestSend = 5s;  // of what is left when the server stops
constexpr std::size_t kRequestsOfConnection = 100'000;
constexpr std::time_t kIdleSeconds = 2;  // of a connection; it is what a shutdown waits for

// What the log says about the request of this thread.
struct Note {
  Clock::time_point start = Clock::now();
  std::string text;
};
thread_local Note note;

std::string time_of_day() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  return fmt::format("{:02}:{:02}:{:02}", local.tm_hour, local.tm_min, local.tm_sec);
}

const char* method_of(const std::string& path) {
  if (path == kCompletions) return "POST";
  const bool known = path == "/" || path == kModels || path.starts_with(std::string(kModels) + "/");
  return known ? "GET" : nullptr;
}

void refuse(Response& response, const ApiError& error) {
  response.status = error.status();
  if (error.status() == 429) response.set_header("Retry-After", "1");
  response.set_content(to_text(error.json()), kJson);
}

// For what httplib refuses by itself.
ApiError error_of(const Request& request, const Response& response, const HttpOptions& options) {
  const char* const method = method_of(request.path);
  switch (response.status) {
    case 404:
      if (method != nullptr)
        return {405, fmt::format("{} is not allowed for {}; it may be {}", request.method, request.path, method), "",
                "method_not_allowed"};
      return {404, fmt::format("there is nothing at {}; there is /, {} and {}", request.path, kModels, kCompletions),
              "", "not_found"};
    case 413:
      return {413, fmt::format("the body is too large; it may have {} bytes", options.body), "", "body_too_large"};
    case 414:
      return {414, "the address is too long", "", "address_too_long"};
    default:
      return {response.status, "this is not a request the server understands", "", "bad_request"};
  }
}

std::string read_body(const Request& request, const httplib::ContentReader& reader, std::size_t most,
                      const Response& response) {
  std::string body;
  bool fits = true;
  const std::string type = request.get_header_value("Content-Type");
  const bool whole = !request.is_multipart_form_data() && reader([&](const char* data, std::size_t count) {
    fits = count <= most - body.size();
    if (fits) body.append(data, count);
    return fits;
  });
  if (!fits || response.status == 413)
    throw ApiError(413, fmt::format("the body is too large; it may have {} bytes", most), "", "body_too_large");
  if (!type.starts_with(kJson))  // which pages of other servers cannot send without being allowed to
    throw ApiError(415, fmt::format("Content-Type is \"{}\"; it must be {}", type, kJson), "", "not_json");
  if (!whole) throw ApiError(400, "the body ends too early", "", "bad_request");
  return body;
}

}  // namespace

struct HttpServer::Parts {
  const tasks::LanguageModel& model;
  tasks::Scheduler& scheduler;
  const HttpOptions options;
  const std::int64_t created = std::time(nullptr);
  httplib::Server server;
  std::mutex log_mutex{};
  std::mutex mutex{};
  std::condition_variable sent{};
  int sending = 0;

  io::Json model_json() const {
    return {{"id", model.name}, {"object", "model"}, {"created", created}, {"owned_by", "mhla"}};
  }

  void list_models(Response& response) const {
    response.set_content(to_text({{"object", "list"}, {"data", io::Json::array({model_json()})}}), kJson);
  }

  void show_model(const std::string& name, Response& response) const {
    if (name != model.name)
      return refuse(response, {404, fmt::format("model is \"{}\"; this server has \"{}\"", name, model.name), "model",
                               "model_not_found"});
    response.set_content(to_text(model_json()), kJson);
  }

  void complete(const Request& request, Response& response, const httplib::ContentReader& reader) {
    const std::string body = read_body(request, reader, options.body, response);
    const auto completion =
        std::make_shared<Completion>(read_completion(body, model, options.limits), model, scheduler);
    response.status = 200;
    response.set_header("Cache-Control", "no-store");
    begin();
    response.set_chunked_content_provider(
        completion->streams() ? "text/event-stream" : kJson,
        [completion](std::size_t, httplib::DataSink& sink) { return send(*completion, sink); },
        [this](bool) { end(); });
  }

  // Answers that are being sent: httplib breaks them off when it stops.
  void begin() {
    const std::scoped_lock lock(mutex);
    ++sending;
  }

  void end() {
    const std::scoped_lock lock(mutex);
    --sending;
    sent.notify_all();
  }

  void wait_until_sent() {
    std::unique_lock lock(mutex);
    sent.wait_for(lock, kLongestSend, [this] { return sending == 0; });
  }

  static bool send(Completion& completion, httplib::DataSink& sink) {
    const std::string text = completion.next(kLook);
    const bool there = sink.is_writable() && (text.empty() || sink.write(text.data(), text.size()));
    note.text = fmt::format(", {} + {} tokens{}", completion.prompt_tokens(), completion.tokens(),
                            there ? "" : ", the client hung up");
    if (there && completion.sent()) sink.done();
    return there;
  }

  void log(const Request& request, const Response& response) {
    const double seconds = std::chrono::duration<double>(Clock::now() - note.start).count();
    const std::string line = fmt::format("{} {} {} {} {}{}, {:.3f} s\n", time_of_day(), request.remote_addr,
                                         request.method, request.path, response.status, note.text, seconds);
    const std::scoped_lock lock(log_mutex);
    std::cerr << line << std::flush;
    note = {};
  }

  void set_limits() {
    server.new_task_queue = [this] { return new httplib::ThreadPool(options.connections); };
    server.set_payload_max_length(options.body);
    server.set_tcp_nodelay(true);
    server.set_keep_alive_max_count(kRequestsOfConnection);
    server.set_keep_alive_timeout(kIdleSeconds);
    server.set_socket_options([](socket_t) {});  // a port in use is an error
  }

  void set_paths() {
    server.Get("/", [](const Request&, Response& response) {
      response.set_header("Content-Security-Policy",
                          "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
                          "connect-src 'self'; frame-ancestors 'none'");
      response.set_content(std::string(kServePage), "text/html; charset=utf-8");
    });
    server.Get(kModels, [this](const Request&, Response& response) { list_models(response); });
    server.Get(std::string(kModels) + "/(.+)",
               [this](const Request& request, Response& response) { show_model(request.matches[1], response); });
    server.Post(kCompletions, [this](const Request& request, Response& response, const httplib::ContentReader& reader) {
      try {
        complete(request, response, reader);
      } catch (const ApiError& error) {
        refuse(response, error);
      }
    });
  }

  void set_handlers() {
    server.set_pre_routing_handler([](const Request&, Response&) {
      note = {};
      return httplib::Server::HandlerResponse::Unhandled;
    });
    server.set_error_handler([this](const Request& request, Response& response) {
      if (!response.body.empty()) return;
      const ApiError error = error_of(request, response, options);
      if (error.status() == 405) response.set_header("Allow", method_of(request.path));
      refuse(response, error);
    });
    server.set_exception_handler([](const Request&, Response& response, const std::exception_ptr& thrown) {
      std::string message = "unknown";
      try {
        std::rethrow_exception(thrown);
      } catch (const std::exception& error) {
        message = error.what();
      } catch (...) {
      }
      refuse(response, {500, message, "", "failed"});
    });
    server.set_logger([this](const Request& request, const Response& response) { log(request, response); });
  }
};

HttpServer::HttpServer(const tasks::LanguageModel& model, tasks::Scheduler& scheduler, const HttpOptions& options)
    : parts_(new Parts{.model = model, .scheduler = scheduler, .options = options, .server = {}}) {
  parts_->set_limits();
  parts_->set_paths();
  parts_->set_handlers();
}

HttpServer::~HttpServer() = default;

int HttpServer::bind(const std::string& host, int port) {
  const int bound =
      port == 0 ? parts_->server.bind_to_any_port(host) : (parts_->server.bind_to_port(host, port) ? port : -1);
  if (bound < 0)
    throw Error(fmt::format("--port is {} and --host is {}: there is no such address here, or another program has it",
                            port, host));
  return bound;
}

void HttpServer::listen() {
  if (!parts_->server.listen_after_bind()) throw Error("the server cannot accept connections");
}

bool HttpServer::listens() const { return parts_->server.is_running(); }

void HttpServer::stop() {
  parts_->wait_until_sent();
  parts_->server.stop();
}

}  // namespace mhla::cli
