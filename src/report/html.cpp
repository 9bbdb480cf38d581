// The report page and its styles.
#include "report/html.hpp"

#include <fmt/format.h>

#include "io/file.hpp"
#include "io/printable.hpp"

namespace mhla::report::html {
namespace {

constexpr std::string_view kStyle = R"(
:root { --ink: #1c2430; --soft: #5b6675; --line: #e3e7ec; --ground: #ffffff; --card: #f6f8fa; --accent: #2f7dd1; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8ecf1; --soft: #9aa6b4; --line: #2c3440; --ground: #12161c; --card: #1a2028; --accent: #6aaef0; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--ink); line-height: 1.6; font-size: 17px;
  font-family: system-ui, -apple-system, "Segoe UI", Roboto, Helvetica, Arial, sans-serif; }
main { max-width: 860px; margin: 0 auto; padding: 56px 24px 72px; }
h1 { font-size: 2.1rem; line-height: 1.2; margin: 0 0 8px; letter-spacing: -0.02em; }
h2 { font-size: 1.35rem; line-height: 1.3; margin: 0 0 10px; letter-spacing: -0.01em; }
p { margin: 0 0 14px; }
.subtitle { color: var(--soft); font-size: 1.05rem; }
.note, figcaption { color: var(--soft); font-size: 0.88rem; line-height: 1.5; }
section { margin-top: 48px; padding-top: 30px; border-top: 1px solid var(--line); }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(180px, 1fr)); gap: 14px; margin: 28px 0 0; }
.figure { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 16px 18px; }
.figure b { display: block; font-size: 1.6rem; line-height: 1.2; color: var(--accent); font-variant-numeric: tabular-nums; }
.figure span { display: block; color: var(--soft); font-size: 0.88rem; line-height: 1.4; margin-top: 4px; }
figure { margin: 20px 0 18px; }
figcaption { margin-top: 8px; }
svg.chart { width: 100%; height: auto; display: block; }
svg.chart .label { fill: var(--soft); }
.pictures { display: grid; grid-template-columns: repeat(auto-fit, minmax(220px, 1fr)); gap: 18px; }
.pictures img { width: 100%; display: block; border-radius: 6px; image-rendering: pixelated; }
.pictures strong { display: block; margin-bottom: 6px; }
.pictures span { display: block; color: var(--soft); font-size: 0.88rem; line-height: 1.4; margin-top: 6px; }
.scale { max-width: 360px; margin: 14px auto 0; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; margin: 14px 0 18px; font-size: 0.94rem; font-variant-numeric: tabular-nums; }
th { text-align: right; font-weight: 600; color: var(--soft); border-bottom: 2px solid var(--line); padding: 6px 10px; }
td { text-align: right; border-bottom: 1px solid var(--line); padding: 6px 10px; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
)";

}  // namespace

std::string escape(std::string_view text) {
  std::string result;
  for (const char letter : io::printable(text, "\n\t")) switch (letter) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '"':
        result += "&quot;";
        break;
      default:
        result += letter;
    }
  return result;
}

Report::Report(std::string title, std::string subtitle) : title_(std::move(title)), subtitle_(std::move(subtitle)) {}

void Report::key_figures(const std::vector<std::pair<std::string, std::string>>& figures) {
  body_ += "<div class=\"figures\">\n";
  for (const auto& [number, meaning] : figures)
    body_ += fmt::format("<div class=\"figure\"><b>{}</b><span>{}</span></div>\n", escape(number), escape(meaning));
  body_ += "</div>\n";
}

void Report::section(std::string_view heading) {
  if (in_section_) body_ += "</section>\n";
  in_section_ = true;
  body_ += fmt::format("<section>\n<h2>{}</h2>\n", escape(heading));
}

void Report::paragraph(std::string_view text) { body_ += fmt::format("<p>{}</p>\n", escape(text)); }

void Report::note(std::string_view text) { body_ += fmt::format("<p class=\"note\">{}</p>\n", escape(text)); }

void Report::chart(std::string_view svg, std::string_view caption) {
  body_ += fmt::format("<figure>{}<figcaption>{}</figcaption></figure>\n", svg, escape(caption));
}

void Report::pictures(const std::vector<Picture>& pictures, std::string_view scale_svg, std::string_view caption) {
  body_ += "<figure><div class=\"pictures\">\n";
  for (const Picture& picture : pictures)
    body_ += fmt::format(
        "<div><strong>{0}</strong><img alt=\"{0}\" src=\"data:image/png;base64,{1}\"><span>{2}</span></div>\n",
        escape(picture.title), io::base64(picture.png), escape(picture.caption));
  body_ += fmt::format("</div><div class=\"scale\">{}</div><figcaption>{}</figcaption></figure>\n", scale_svg,
                       escape(caption));
}

void Report::table(const std::vector<std::string>& header, const std::vector<std::vector<std::string>>& rows) {
  body_ += "<div class=\"scroll\"><table>\n<tr>";
  for (const std::string& cell : header) body_ += fmt::format("<th>{}</th>", escape(cell));
  body_ += "</tr>\n";
  for (const auto& row : rows) {
    body_ += "<tr>";
    for (const std::string& cell : row) body_ += fmt::format("<td>{}</td>", escape(cell));
    body_ += "</tr>\n";
  }
  body_ += "</table></div>\n";
}

std::string Report::page() const {
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, "
      "initial-scale=1\">\n<title>{0}</title>\n<style>{1}</style>\n</head>\n"
      "<body>\n<main>\n<h1>{0}</h1>\n<p class=\"subtitle\">{2}</p>\n{3}{4}</main>\n</body>\n</html>\n",
      escape(title_), kStyle, escape(subtitle_), body_, in_section_ ? "</section>\n" : "");
}

}  // namespace mhla::report::html
