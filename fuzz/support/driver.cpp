// Runs a target on the files of its corpus, on its seeds, and on a fixed number of inputs made from both.
//
//   fuzz_png [--count N] [--first I] [--seed S] [--write FILE] [FILE|FOLDER]...
//
// Input I is the same in every run: after a crash or ten seconds the number is printed, and `--first I --count 1
// --write FILE` writes the input to a file, for fuzz/corpus/<target>.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <fstream>
#include <iterator>

#include "support/mutate.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
extern "C" __attribute__((weak)) void __sanitizer_set_death_callback(void (*callback)());

// A size that no machine has is an exception, as without the sanitizer.
extern "C" const char* __asan_default_options() { return "allocator_may_return_null=1:detect_leaks=0"; }

namespace mhla::fuzz {

long File::id() { return ::getpid(); }

namespace {

constexpr unsigned kLimitSeconds = 10;

// What is judged now, for the handlers.
char g_place[512];

void say(const char* what) {
  const auto put = [](const char* text) {
    std::size_t length = 0;
    while (text[length] != '\0') ++length;
    [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text, length);
  };
  put("fuzz: ");
  put(what);
  put(g_place);
  put("\n");
}

void on_crash() { say("this was "); }
extern "C" void on_signal(int number) {
  say(number == SIGALRM ? "more than 10 seconds for " : "a crash: this was ");
  ::_exit(128 + number);
}

void watch() {
  for (const int number : {SIGSEGV, SIGABRT, SIGFPE, SIGBUS, SIGILL, SIGALRM}) {
    struct sigaction action{};
    action.sa_handler = on_signal;
    ::sigaction(number, &action, nullptr);
  }
  if (__sanitizer_set_death_callback != nullptr) {
    __sanitizer_set_death_callback(on_crash);
    for (const int number : {SIGSEGV, SIGFPE, SIGBUS, SIGILL}) ::signal(number, SIG_DFL);
  }
}

void judge(const Bytes& input, const std::string& place) {
  std::snprintf(g_place, sizeof g_place, "%s", place.c_str());
  ::alarm(kLimitSeconds);
  LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(input.data()), input.size());
  ::alarm(0);
}

Bytes read(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(stream), {}};
  return bytes_of(text);
}

std::vector<std::filesystem::path> files_of(const std::filesystem::path& path) {
  if (!std::filesystem::is_directory(path)) return {path};
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(path)) files.push_back(entry.path());
  std::ranges::sort(files);
  return files;
}

struct Options {
  std::uint64_t count = 1000, first = 0, seed = 1;
  std::string write;
  std::vector<std::string> paths;
};

Options parse(std::span<char*> arguments) {
  Options options;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string name = arguments[i];
    if (!name.starts_with("--")) {
      options.paths.push_back(name);
      continue;
    }
    const std::string value = i + 1 < arguments.size() ? arguments[++i] : "";
    if (name == "--write") {
      options.write = value;
      continue;
    }
    std::uint64_t* number = name == "--count"   ? &options.count
                            : name == "--first" ? &options.first
                            : name == "--seed"  ? &options.seed
                                                : nullptr;
    const char* end = value.data() + value.size();
    if (number == nullptr || value.empty() || std::from_chars(value.data(), end, *number).ptr != end) {
      std::fprintf(stderr, "%s %s: it may be --count N, --first I, --seed S or --write FILE\n", name.c_str(),
                   value.c_str());
      std::exit(2);
    }
  }
  return options;
}

int run(const Options& options) {
  const auto begin = std::chrono::steady_clock::now();
  watch();
  Inputs inputs = seeds();
  std::size_t files = 0;
  for (const std::string& path : options.paths)
    for (const auto& file : files_of(path)) {
      inputs.push_back(read(file));
      judge(inputs.back(), file.string());
      ++files;
    }
  for (std::size_t i = 0; i + files < inputs.size(); ++i) judge(inputs[i], "seed " + std::to_string(i));
  for (std::uint64_t i = options.first; i < options.first + options.count; ++i) {
    Random random((options.seed << 40U) + i);
    const Bytes input = mutated(inputs, random);
    if (!options.write.empty())
      std::ofstream(options.write, std::ios::binary)
          .write(reinterpret_cast<const char*>(input.data()), static_cast<std::streamsize>(input.size()));
    judge(input, "input " + std::to_string(i) + " of --seed " + std::to_string(options.seed));
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  std::printf("%zu files, %zu seeds and %llu changed inputs, no fault, %.1f s\n", files, inputs.size() - files,
              static_cast<unsigned long long>(options.count), seconds.count());
  return 0;
}

}  // namespace
}  // namespace mhla::fuzz

int main(int argc, char** argv) {
  return mhla::fuzz::run(mhla::fuzz::parse(std::span(argv + 1, static_cast<std::size_t>(argc - 1))));
}
