// Pieces all charts are drawn with. Colours read on light and dark ground.
#pragma once

#include <array>
#include <string>

namespace mhla::report::svg {

inline constexpr std::array<const char*, 7> kColours = {"#2f7dd1", "#e0682d", "#24a06b", "#a25bd6",
                                                        "#c9a00f", "#d64b7f", "#6b7280"};
inline constexpr double kLetterWidth = 7.2;  // of a label, on average
inline constexpr double kFaint = 0.22;       // opacity of grid lines

// `anchor`: start, middle or end; `extra`: further attributes.
std::string text(double x, double y, const char* anchor, int size, const std::string& content,
                 const std::string& extra = "");
std::string grid_line(double x1, double y1, double x2, double y2, double opacity = kFaint);
std::string dot(double x, double y, double radius, const char* colour);

// The whole picture; `label` is read to those who cannot see it.
std::string picture(double width, double height, const std::string& label, const std::string& body);

}  // namespace mhla::report::svg
