// Validation of vocabularies and merges.
#include "text/bpe_files.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "io/file.hpp"
#include "io/printable.hpp"
#include "mhla/types.hpp"
#include "text/byte_letters.hpp"

namespace mhla::text {
namespace {

using io::Json;

constexpr std::size_t kMostTokens = std::size_t{1} << 24;

std::string shown(std::string_view text) {
  constexpr std::size_t kMostShown = 60;
  return fmt::format("\"{}\"{}", io::printable(text.substr(0, kMostShown)), text.size() > kMostShown ? "..." : "");
}

// A model in the making: what both kinds of files hold, as they spell it.
class Reader {
 public:
  explicit Reader(std::string source) : source_(std::move(source)) {}

  void set_source(std::string source) { source_ = std::move(source); }  // what messages begin with

  // {"Ġt": 256, ...}
  void read_vocabulary(const Json& vocabulary) {
    if (!vocabulary.is_object() || vocabulary.empty()) fail("the vocabulary must be an object of tokens and their ids");
    if (vocabulary.size() > kMostTokens)
      fail(fmt::format("the vocabulary has {} tokens; it may have {}", vocabulary.size(), kMostTokens));
    for (const auto& [spelling, id] : vocabulary.items()) add(spelling, id);
  }

  // A token that text never becomes. Its name may be in the vocabulary too.
  void add_special(const std::string& name, const Json& id) {
    if (const auto found = tokens_.find(name); found == tokens_.end())
      add(name, id);
    else if (std::int64_t number = 0; !io::read_exactly(id, number) || number != found->second)
      fail(fmt::format("the special token {} has the id {}, and {} in the vocabulary", shown(name), id.dump(),
                       found->second));
    if (!special_.insert(name).second) fail(fmt::format("the special token {} appears twice", shown(name)));
  }

  void add_merge(std::string_view left, std::string_view right) {
    const std::string both = std::string(left) + std::string(right);
    const Merge merge{merged(left, both), merged(right, both), merged(both, both)};
    if (!pairs_.insert(fmt::format("{} {}", left, right)).second)
      fail(fmt::format("merge {} ({} {}) appears twice", model_.merges.size(), shown(left), shown(right)));
    model_.merges.push_back(merge);
    made_.insert({merge.left, merge.right, merge.result});
  }

  // "Ġ t", as a line or a string.
  void add_merge(std::string_view pair) {
    const std::size_t space = pair.find(' ');
    if (space == 0 || space == std::string_view::npos || space + 1 == pair.size() ||
        pair.find(' ', space + 1) != std::string_view::npos)
      fail(
          fmt::format("merge {} is {}; it must be two tokens with a space between", model_.merges.size(), shown(pair)));
    add_merge(pair.substr(0, space), pair.substr(space + 1));
  }

  // Names that GPT-2's own files do not mark as special; a merge could make them from text.
  void mark_special_names() {
    for (const char* name : {"<|endoftext|>", "<s>", "</s>", "<unk>", "<pad>"})
      if (tokens_.contains(name) && !made_.contains(static_cast<Token>(tokens_.at(name)))) special_.insert(name);
  }

  BpeModel finish() {
    const auto size = static_cast<std::int64_t>(tokens_.size());
    model_.pieces.resize(tokens_.size());
    std::vector<const std::string*> owner(tokens_.size());
    for (const auto& [spelling, id] : tokens_) {
      if (id < 0 || id >= size)
        fail(fmt::format("the id of {} is {}; {} tokens have ids from 0 to {}", shown(spelling), id, size, size - 1));
      if (owner[id] != nullptr)
        fail(fmt::format("the id {} belongs to both {} and {}", id, shown(std::min(*owner[id], spelling)),
                         shown(std::max(*owner[id], spelling))));
      owner[id] = &spelling;
      if (special_.contains(spelling)) {
        if (made_.contains(static_cast<Token>(id)))
          fail(fmt::format("merges use the special token {}", shown(spelling)));
        model_.special.push_back({static_cast<Token>(id), spelling});
        continue;
      }
      const std::optional<std::string> bytes = bytes_of_spelling(spelling);
      if (!bytes || bytes->empty())
        fail(fmt::format("the token {} is no spelling of bytes, and no special token", shown(spelling)));
      model_.pieces[id] = *bytes;
    }
    std::ranges::sort(model_.special, {}, &BpeModel::Special::token);
    return std::move(model_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { throw Error(fmt::format("{}: {}", source_, what)); }

  void add(const std::string& spelling, const Json& id) {
    std::int64_t number = 0;
    if (!io::read_exactly(id, number) || number < 0 || number >= static_cast<std::int64_t>(kMostTokens))
      fail(fmt::format("the id of {} is {}; it must be an integer from 0 to {}", shown(spelling),
                       shown(id.dump(-1, ' ', false, Json::error_handler_t::replace)), kMostTokens - 1));
    tokens_.emplace(spelling, number);
  }

  Token merged(std::string_view spelling, std::string_view both) const {
    const auto found = tokens_.find(std::string(spelling));
    if (found == tokens_.end())
      fail(fmt::format("merge {} makes {}; the vocabulary has no token {}", model_.merges.size(), shown(both),
                       shown(spelling)));
    return static_cast<Token>(found->second);
  }

  std::string source_;
  BpeModel model_;
  std::unordered_map<std::string, std::int64_t> tokens_;
  std::unordered_set<std::string> special_, pairs_;
  std::unordered_set<Token> made_;  // what merges take and give
};

// The member must have this value, where it is given.
void require(const Json& object, const char* member, const Json& value, const std::string& where) {
  if (const auto found = object.find(member); found != object.end() && *found != value)
    throw Error(fmt::format("{}{} is {}; only {} is read", where, member, found->dump(), value.dump()));
}

const Json& member(const Json& object, const char* name, const std::string& where) {
  const auto found = object.is_object() ? object.find(name) : object.end();
  if (found == object.end()) throw Error(fmt::format("{}{} is missing", where, name));
  return *found;
}

void check_pipeline(const Json& json, const std::string& name) {
  require(json, "normalizer", nullptr, name + ": ");
  const Json& words = member(json, "pre_tokenizer", name + ": ");
  require(words, "type", "ByteLevel", name + ": pre_tokenizer.");
  member(words, "type", name + ": pre_tokenizer.");
  require(words, "add_prefix_space", false, name + ": pre_tokenizer.");
  require(words, "use_regex", true, name + ": pre_tokenizer.");
  const std::string where = name + ": model.";
  const Json& model = member(json, "model", name + ": ");
  require(model, "type", "BPE", where);
  require(model, "dropout", nullptr, where);
  require(model, "byte_fallback", false, where);
  require(model, "ignore_merges", false, where);
  for (const char* affix : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (const auto found = model.find(affix); found != model.end() && !found->is_null())
      require(model, affix, "", where);
}

}  // namespace

BpeModel read_gpt2_files(const Json& vocabulary, const std::string& name, std::string_view merges,
                         const std::string& name_of_merges) {
  Reader reader(name);
  reader.read_vocabulary(vocabulary);
  reader.set_source(name_of_merges);
  for (bool first = true; !merges.empty(); first = false) {
    const std::size_t end = std::min(merges.find('\n'), merges.size());
    std::string_view pair = merges.substr(0, end);
    merges.remove_prefix(std::min(end + 1, merges.size()));
    if (pair.ends_with('\r')) pair.remove_suffix(1);
    if (!pair.empty() && !(first && pair.starts_with("#version"))) reader.add_merge(pair);
  }
  reader.set_source(name);
  reader.mark_special_names();
  return reader.finish();
}

BpeModel read_tokenizer_json(const Json& json, const std::string& name) {
  check_pipeline(json, name);
  Reader reader(name);
  const Json& model = member(json, "model", name + ": ");
  reader.read_vocabulary(member(model, "vocab", name + ": model."));
  if (const auto added = json.find("added_tokens"); added != json.end())
    for (const Json& token : *added) {
      const std::string where = name + ": added_tokens.";
      std::string content;
      if (!io::read_exactly(member(token, "content", where), content) || content.empty())
        throw Error(where + "content must be a text");
      require(token, "special", true, where);
      reader.add_special(content, member(token, "id", where));
    }
  const Json& merges = member(model, "merges", name + ": model.");
  if (!merges.is_array()) throw Error(name + ": model.merges must be a list");
  for (const Json& merge : merges) {
    std::array<std::string, 2> pair;
    if (std::string line; io::read_exactly(merge, line))
      reader.add_merge(line);
    else if (io::read_exactly(merge, pair))
      reader.add_merge(pair[0], pair[1]);
    else
      throw Error(name + ": model.merges: each must be a text or a list of two");
  }
  return reader.finish();
}

void write_tokenizer_json(const std::filesystem::path& path, const BpeModel& model) {
  Json vocabulary = Json::object(), added = Json::array(), merges = Json::array();
  std::vector<std::string> spelling;
  spelling.reserve(model.pieces.size());
  for (const std::string& piece : model.pieces) spelling.push_back(spelled(piece));
  for (const auto& [token, name] : model.special) {
    spelling[static_cast<std::size_t>(token)] = name;
    added.push_back({{"id", token},
                     {"content", name},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  Json::object_t::Container& members = vocabulary.get_ref<Json::object_t&>();
  for (std::size_t i = 0; i < spelling.size(); ++i) members.emplace_back(spelling[i], i);
  for (const Merge& merge : model.merges)
    merges.push_back(fmt::format("{} {}", spelling[merge.left], spelling[merge.right]));
  const Json words = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  const Json json = {{"version", "1.0"},
                     {"truncation", nullptr},
                     {"padding", nullptr},
                     {"added_tokens", added},
                     {"normalizer", nullptr},
                     {"pre_tokenizer", words},
                     {"post_processor", nullptr},
                     {"decoder", words},
                     {"model",
                      {{"type", "BPE"},
                       {"dropout", nullptr},
                       {"unk_token", nullptr},
                       {"continuing_subword_prefix", nullptr},
                       {"end_of_word_suffix", nullptr},
                       {"fuse_unk", false},
                       {"byte_fallback", false},
                       {"vocab", vocabulary},
                       {"merges", merges}}}};
  io::write_file(path, json.dump(1) + "\n");
}

}  // namespace mhla::text
