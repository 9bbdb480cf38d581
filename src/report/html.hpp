// A report as one HTML file that needs nothing else: styles, charts and pictures are inside.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mhla::report::html {

std::string escape(std::string_view text);

struct Picture {
  std::vector<std::byte> png;
  std::string title;
  std::string caption;
};

class Report {
 public:
  Report(std::string title, std::string subtitle);

  void key_figures(const std::vector<std::pair<std::string, std::string>>& figures);  // (number, what it is)
  void section(std::string_view heading);                                             // says the finding
  void paragraph(std::string_view text);
  void note(std::string_view text);  // small print
  void chart(std::string_view svg, std::string_view caption);
  void pictures(const std::vector<Picture>& pictures, std::string_view scale_svg, std::string_view caption);
  void table(const std::vector<std::string>& header, const std::vector<std::vector<std::string>>& rows);

  std::string page() const;

 private:
  std::string title_;
  std::string subtitle_;
  std::string body_;
  bool in_section_ = false;
};

}  // namespace mhla::report::html
