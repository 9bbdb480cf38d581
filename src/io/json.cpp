// Strict JSON parsing.
#include "io/json.hpp"

#include <fmt/format.h>

#include <set>
#include <utility>
#include <vector>

#include "mhla/types.hpp"

namespace mhla::io {

namespace {

// Builds the value from the parser's events. The library's own builder looks for every key among those before it, which
// takes n^2 steps; here a set knows them, and values are appended.
class Builder final : public Json::json_sax_t {
 public:
  Builder(std::string_view source, int max_depth) : source_(source), max_depth_(max_depth) {}

  Json take() { return std::move(root_); }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t& /*text*/) override { return add(value); }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t& value) override { return add(std::move(value)); }
  bool start_object(std::size_t /*elements*/) override { return open(Json::object()); }
  bool end_object() override { return close(); }
  bool start_array(std::size_t /*elements*/) override { return open(Json::array()); }
  bool end_array() override { return close(); }

  bool key(string_t& name) override {
    if (!open_.back().keys.insert(name).second) throw Error(fmt::format("{}: key \"{}\" appears twice", source_, name));
    open_.back().key = std::move(name);
    return true;
  }

  bool parse_error(std::size_t /*position*/, const std::string& /*token*/, const Json::exception& error) override {
    throw Error(fmt::format("{}: not valid JSON: {}", source_, error.what()));
  }

 private:
  struct Container {
    Json* value;
    std::set<std::string> keys{};  // of an object
    std::string key{};             // of the value that comes next
  };

  Json* place(Json value) {
    if (open_.empty()) return &(root_ = std::move(value));
    Container& container = open_.back();
    if (container.value->is_array()) return &container.value->get_ref<Json::array_t&>().emplace_back(std::move(value));
    Json::object_t::Container& members = container.value->get_ref<Json::object_t&>();
    return &members.emplace_back(std::move(container.key), std::move(value)).second;
  }

  bool add(Json value) {
    place(std::move(value));
    return true;
  }

  bool open(Json container) {
    if (std::ssize(open_) == max_depth_)
      throw Error(fmt::format("{}: nested deeper than {} levels", source_, max_depth_));
    open_.push_back({place(std::move(container))});
    return true;
  }

  bool close() {
    open_.pop_back();
    return true;
  }

  std::string_view source_;
  int max_depth_;
  Json root_;
  std::vector<Container> open_;  // a container does not move while one inside it is open
};

}  // namespace

Json parse_json(std::string_view text, std::string_view source, int max_depth) {
  Builder builder(source, max_depth);
  Json::sax_parse(text.begin(), text.end(), &builder);
  return builder.take();
}

bool read_exactly(const Json& value, bool& target) {
  if (value.is_boolean()) target = value.get<bool>();
  return value.is_boolean();
}

bool read_exactly(const Json& value, std::int64_t& target) {
  const bool fits = value.is_number_integer() &&
                    (!value.is_number_unsigned() || std::in_range<std::int64_t>(value.get<std::uint64_t>()));
  if (fits) target = value.get<std::int64_t>();
  return fits;
}

bool read_exactly(const Json& value, double& target) {
  if (value.is_number()) target = value.get<double>();
  return value.is_number();
}

bool read_exactly(const Json& value, float& target) {
  if (value.is_number()) target = value.get<float>();
  return value.is_number();
}

bool read_exactly(const Json& value, std::string& target) {
  if (value.is_string()) target = value.get<std::string>();
  return value.is_string();
}

}  // namespace mhla::io
