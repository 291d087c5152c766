// The report of runs as one HTML file: it refers to no other file and to no network, and nothing that comes from a run
// becomes markup or script.
//
// Texts are escaped, the numbers of curves are JSON without '<', and a policy in the page lets its own script and style
// run alone. The tables are there without the script; it draws the curves (page/report.js).
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "nought/report/run_folder.h"

namespace nought {

struct ReportOptions {
  std::string title = {};  // "": the names of the runs
  double every = 0;        // seconds after which the page loads itself again; 0: never
};
/// The page of one run or more.
std::string report_page(std::span<const RunFolder> runs, const ReportOptions& options);

/// page/report.css and page/report.js.
std::string_view report_style();
std::string_view report_script();

}  // namespace nought
