// JSON output.
#include "io/file.hpp"
#include "io/json.hpp"
#include "io/output_file.hpp"
#include "io/printable.hpp"

namespace mhla::io {
namespace {

std::string utf8(const std::string& text) { return is_utf8(text) ? text : printable(text); }

// JSON is UTF-8. Names of files, which may be any bytes, are shown as far as they are.
Json with_utf8(const Json& value) {
  if (value.is_string()) return utf8(value.get_ref<const std::string&>());
  if (!value.is_structured()) return value;
  Json result = value.is_array() ? Json::array() : Json::object();
  for (const auto& item : value.items())
    if (value.is_array())
      result.push_back(with_utf8(item.value()));
    else
      result[utf8(item.key())] = with_utf8(item.value());
  return result;
}

}  // namespace

void write_json(const std::string& target, const Json& value) {
  const std::string text = with_utf8(value).dump(2) + "\n";
  if (target == "-")
    write_standard_output(text);
  else
    write_file(target, text);
}

}  // namespace mhla::io
