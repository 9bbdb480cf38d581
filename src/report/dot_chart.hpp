// Dots on lines as SVG: what each of several contestants needs, line by line, on one logarithmic axis.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace mhla::report {

struct DotChart {
  struct Line {
    std::string label;
    std::map<std::string, double> values;  // by contestant; one that is missing has no dot
  };
  struct Panel {
    std::string name, x_label;
    std::vector<Line> lines;
  };

  std::string title, about;  // written above it, and for readers who do not see it
  std::vector<std::string> contestants;
  std::string ours;             // the contestant with larger dots
  std::vector<Panel> panels{};  // one below the other; those without lines are left out

  std::string svg() const;  // the line of value 1 stands out
};

}  // namespace mhla::report
