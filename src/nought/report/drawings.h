// The charts of the report as SVG files: for papers and mails, which take no page.
//
// Non-goals: zoom and values under the pointer, which the page has (page.h).
#pragma once

#include <span>
#include <string>
#include <vector>

#include "nought/report/run_folder.h"

namespace nought {

struct DrawnChart {
  std::string file;  // "loss.svg": letters, digits, '-' and '_' alone
  std::string svg;   // a whole document
};

/// The curves of page.h, the runs overlaid, and the memory of the ranks of each run. Texts of runs are escaped.
std::vector<DrawnChart> draw_report(std::span<const RunFolder> runs);

}  // namespace nought
