#include "nought/report/page.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "nought/base/nonce.h"
#include "nought/report/curves.h"
#include "nought/report/html.h"
#include "nought/report/sections.h"

namespace nought {

namespace {

/// As kRunColours, on a dark ground.
constexpr std::array<const char*, 8> kOnDark{"#5cb8ec", "#e6a23c", "#35c9a0", "#e39cc8",
                                             "#e8e8e8", "#aaa6ff", "#ff8a94", "#c8d45c"};

std::string names_of(std::span<const RunFolder> runs) {
  std::string names;
  for (const RunFolder& run : runs) names += (names.empty() ? "" : ", ") + run.name;
  return names;
}

OrderedJson to_json(const Curve& curve) {
  OrderedJson seconds = OrderedJson::array();
  for (const double each : curve.seconds) seconds.push_back(std::round(1000 * each) / 1000);
  return {{"run", curve.run}, {"kind", curve.kind}, {"x", curve.steps}, {"t", std::move(seconds)}, {"y", curve.values}};
}

OrderedJson data_of(std::span<const RunFolder> runs, const std::vector<CurveChart>& charts, double every) {
  OrderedJson data{{"runs", OrderedJson::array()}, {"charts", OrderedJson::array()}, {"events", OrderedJson::array()}};
  for (size_t i = 0; i < runs.size(); ++i) {
    data["runs"].push_back({{"name", runs[i].name}, {"tokens_per_step", runs[i].number("/run/tokens_per_step")}});
    constexpr size_t kMostLines = 100;
    for (size_t j = 0; j < std::min(runs[i].events.size(), kMostLines); ++j) {
      const RunEvent& event = runs[i].events[j];
      data["events"].push_back({{"run", i}, {"step", event.step}, {"kind", event.kind}, {"text", event.text}});
    }
  }
  for (const CurveChart& chart : charts) {
    OrderedJson series = OrderedJson::array();
    for (const Curve& curve : chart.curves) series.push_back(to_json(curve));
    data["charts"].push_back({{"title", chart.title}, {"unit", chart.unit}, {"series", std::move(series)}});
  }
  data["colours"] = kRunColours, data["colours_dark"] = kOnDark, data["every"] = every;
  return data;
}

/// What the script draws into, and what it is told by.
std::string curves_section(bool tokens) {
  return html_heading("curves-title", "Curves") + "<section id=\"curves\">\n<div class=\"controls\">\n" +
         "<label>along <select id=\"x\"><option value=\"step\">steps</option>" +
         (tokens ? "<option value=\"tokens\">tokens</option>" : "") +
         "<option value=\"time\">time</option></select></label>\n"
         "<label><input type=\"checkbox\" id=\"log\"> logarithmic</label>\n"
         "<label><input type=\"checkbox\" id=\"smooth\" checked> smoothed</label>\n"
         "<button type=\"button\" id=\"reset\">show all</button>\n"
         "<span class=\"pale\">drag to zoom; with the keyboard: arrows, + and -, 0</span>\n</div>\n"
         "<ul class=\"legend\" id=\"legend\"></ul>\n<div id=\"charts\"></div>\n</section>\n"
         "<noscript><p>The curves need JavaScript; their numbers are in the table below.</p></noscript>\n";
}

std::string body_of(std::span<const RunFolder> runs, bool has_curves) {
  const bool several = runs.size() > 1;
  const bool tokens = std::all_of(runs.begin(), runs.end(),
                                  [](const RunFolder& run) { return run.number("/run/tokens_per_step") > 0; });
  std::string html;
  if (!several) html += summary_section(runs.front());
  html += differences_section(runs) + events_section(runs);
  if (has_curves) html += curves_section(tokens) + steps_section(runs);
  html += memory_section(runs) + traffic_section(runs) + times_section(runs) + samples_section(runs);
  std::string settings;
  for (const RunFolder& run : runs) {
    if (several) settings += "<h3>" + escape_html(run.name) + "</h3>\n" + summary_section(run);
    settings += settings_section(run);
  }
  return settings.empty() ? html : html + html_heading("settings", several ? "The runs" : "Settings") + settings;
}

}  // namespace

std::string report_page(std::span<const RunFolder> runs, const ReportOptions& options) {
  const std::vector<CurveChart> charts = charts_of(runs);
  const std::string nonce = random_nonce(), title = escape_html(options.title.empty() ? names_of(runs) : options.title);
  std::string page = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src 'nonce-{0}'; style-src "
      "'nonce-{0}'; img-src data:; base-uri 'none'; form-action 'none'\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"referrer\" content=\"no-referrer\">\n<link rel=\"icon\" href=\"data:,\">\n<title>{1}</title>\n"
      "<style nonce=\"{0}\">\n{2}</style>\n</head>\n<body>\n<main>\n<h1>{1}</h1>\n",
      nonce, title, report_style());
  page += body_of(runs, !charts.empty()) + "</main>\n";
  if (!charts.empty()) {
    page += "<script type=\"application/json\" id=\"data\">" + script_json(data_of(runs, charts, options.every)) +
            "</script>\n" + fmt::format("<script nonce=\"{}\">\n{}</script>\n", nonce, report_script());
  }
  return page + "</body>\n</html>\n";
}

}  // namespace nought
