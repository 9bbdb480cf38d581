// Files of tokens, and files of text on the way to them. An input is a shard, and text or JSON lines by its first byte.
#include "data/tokens/documents.hpp"
#include "data/tokens/shard.hpp"
#include "io/file.hpp"
#include "io/printable.hpp"
#include "support/target.hpp"

using namespace mhla;

namespace {

void judge_shard(std::span<const std::byte> bytes) {
  fuzz::runs_or_names({"the-file"}, [&] {
    const auto shard = data::TokenShard::parse(fuzz::copy_of(bytes), "the-file");
    fuzz::expect(static_cast<std::uint64_t>(shard.size()) <= bytes.size(), "more tokens than bytes");
    std::vector<std::int64_t> tokens(static_cast<std::size_t>(shard.size()));
    shard.read(0, 1000, tokens);
    for (const std::int64_t token : tokens) fuzz::expect(token >= 0 && token < 1000, "a token outside the vocabulary");
  });
}

void judge_text(std::span<const std::byte> bytes) {
  fuzz::runs_or_names({"the-file"}, [&] {
    const std::string name = !bytes.empty() && bytes[0] == std::byte{'{'} ? "the-file.jsonl" : "the-file.txt";
    data::for_each_document(name, bytes, [&](std::string_view document, double done) {
      fuzz::expect(io::is_utf8(document) && !document.empty(), "a document that is no text");
      fuzz::expect(done >= 0.0 && done <= 1.0, "more than the file is done");
    });
  });
}

fuzz::Bytes shard_of(std::int64_t vocabulary) {
  const fuzz::File file(".bin");
  const std::vector<text::Token> tokens{1, 2, 999, 0, 5};
  data::write_shard(file.name(), tokens, vocabulary);
  return io::read_file(file.name());
}

}  // namespace

fuzz::Inputs fuzz::seeds() {
  return {
      shard_of(1000), shard_of(100000),
      bytes_of("One\n<|endoftext|>\nTwo \xC3\xA9\r\n<|endoftext|>\r\n\n<|endoftext|>"),
      bytes_of("{\"text\": \"One\\n\", \"id\": 7}\n\n{\"text\": \"caf\\u00e9 \\ud83d\\ude00\"}\r\n{\"text\": \"\"}")};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  judge_shard(fuzz::bytes_of(data, size));
  judge_text(fuzz::bytes_of(data, size));
  return 0;
}
