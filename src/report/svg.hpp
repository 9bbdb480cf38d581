// The pieces charts are drawn with. Colours read on light and dark ground.
#pragma once

#include <string>

namespace mhla::report::svg {

inline constexpr const char* kInk = "#6b7280";
inline constexpr double kLetterWidth = 7.2;  // of text of size 13, on average

// anchor: start, middle or end; `extra` are further attributes, each after a space.
std::string text(double x, double y, const char* anchor, int size, const std::string& content,
                 const std::string& extra = "");

std::string rule(double x1, double y1, double x2, double y2, double opacity);
std::string dot(double x, double y, double radius, const char* colour);

// The whole picture; `title` is for readers who do not see it.
std::string picture(double width, double height, const std::string& title, const std::string& body);

}  // namespace mhla::report::svg
