#include "nought/report/sections.h"

#include <algorithm>
#include <cmath>
#include <ctime>

#include <fmt/format.h>

#include "nought/base/text.h"
#include "nought/report/compare.h"
#include "nought/report/html.h"
#include "nought/report/run_facts.h"

namespace nought {

namespace {

constexpr size_t kMostEvents = 200, kMostSamples = 60;

std::string tile(std::string_view name, const std::string& value) {
  return value.empty() ? "" : fmt::format("<div><dt>{}</dt><dd>{}</dd></div>\n", escape_html(name), escape_html(value));
}

std::string utc_time(double seconds) {
  const auto time = static_cast<std::time_t>(seconds);
  std::tm utc{};
  ::gmtime_r(&time, &utc);
  char text[40];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S UTC", &utc)};
}

std::string state_text(const RunFolder& run) {
  std::string text = fmt::format("<p>{}", escape_html(name_of(run.state)));
  if (run.state == RunState::running) text += " in " + escape_html(run.owner);
  if (run.state == RunState::stopped) text += ": it was killed, or its end is not recorded";
  if (run.number("/ended") > 0) text += ", " + utc_time(run.number("/ended"));
  text += "</p>\n";
  if (const std::string error = run.text("/error"); run.state == RunState::failed)
    text += fmt::format("<pre class=\"alarm\">{}</pre>\n", escape_html(error));
  for (const std::string& problem : run.problems)
    text += fmt::format("<p class=\"alarm\">{}</p>\n", escape_html(problem));
  if (run.steps.empty()) text += "<p>No step has been made yet.</p>\n";
  return text;
}

std::string step_link(int64_t step) { return fmt::format("<a href=\"#curves\" data-step=\"{0}\">step {0}</a>", step); }

std::string number_text(double value) { return std::isnan(value) ? "no number" : fmt::format("{}", value); }

std::string code(std::string_view text) { return fmt::format("<code>{}</code>", escape_html(text)); }

/// Words for a shell.
std::string quoted(const std::string& word) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./=:,@+%";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

std::string command_of(const RunFolder& run) {
  std::string command = "nought";
  for (const Json& word : rows_of(run.fact("/arguments")))
    if (word.is_string()) command += " " + quoted(word.get<std::string>());
  return command;
}

}  // namespace

std::string summary_section(const RunFolder& run) {
  std::string html =
      fmt::format("<p>{}</p>\n", escape_html(describe_run(run))) + state_text(run) + "<dl class=\"tiles\">\n";
  for (const RunFigure& figure : run_figures())
    if (figure.name != "state" && figure.name != "machine" && figure.name != "program")
      html += tile(figure.name, figure.text(run));
  return html + "</dl>\n";
}

std::string events_section(std::span<const RunFolder> runs) {
  std::string items;
  size_t count = 0;
  for (const RunFolder& run : runs)
    for (const RunEvent& event : run.events)
      if (++count <= kMostEvents)
        items +=
            fmt::format("<li>{}{}: <strong>{}</strong>: {}</li>\n", runs.size() > 1 ? escape_html(run.name) + ", " : "",
                        step_link(event.step), escape_html(event.kind), escape_html(event.text));
  if (count == 0) return "";
  if (count > kMostEvents) items += fmt::format("<li>and {} more</li>\n", count - kMostEvents);
  return html_heading("events", "What happened") + "<ul>\n" + items + "</ul>\n";
}

std::string differences_section(std::span<const RunFolder> runs) {
  if (runs.size() < 2) return "";
  const auto table = [&](const char* caption, const std::vector<ComparedRow>& rows) {
    HtmlTable html{.caption = caption, .rows = {{""}}, .numbers = 1};
    for (const RunFolder& run : runs) html.rows[0].push_back(escape_html(run.name));
    for (const ComparedRow& row : rows) {
      html.rows.push_back({escape_html(row.name)});
      for (const std::string& value : row.values) html.rows.back().push_back(value.empty() ? "-" : escape_html(value));
    }
    return to_html(html);
  };
  const std::string settings = table("Settings that differ", differing_settings(runs));
  return html_heading("differences", "Differences") + (settings.empty() ? "<p>No setting differs.</p>\n" : settings) +
         table("Figures", measured_rows(runs));
}

std::string steps_section(std::span<const RunFolder> runs) {
  constexpr size_t kRows = 40;
  std::string html;
  for (const RunFolder& run : runs) {
    if (run.steps.empty()) continue;
    HtmlTable table{.caption = run.name, .rows = {{"step"}}, .numbers = 0};
    std::vector<const std::vector<double>*> columns;
    for (const char* name : {"loss", "lr", "grad_norm", "tokens_per_second", "mfu"})
      if (const std::vector<double>* column = run.steps.find(name))
        columns.push_back(column), table.rows[0].emplace_back(name);
    const size_t count = run.steps.rows(), shown = std::min(count, kRows);
    for (size_t i = 0; i < shown; ++i) {
      const size_t row = shown == 1 ? 0 : i * (count - 1) / (shown - 1);
      table.rows.push_back({std::to_string(run.steps.steps()[row])});
      for (const std::vector<double>* column : columns) table.rows.back().push_back(number_text((*column)[row]));
    }
    html += to_html(table);
  }
  if (html.empty()) return "";
  return "<details><summary>The curves as a table</summary>\n" + html + "</details>\n";
}

std::string samples_section(std::span<const RunFolder> runs) {
  std::string html;
  for (const RunFolder& run : runs) {
    HtmlTable table{.caption = runs.size() > 1 ? run.name : "", .rows = {{"step", "prompt", "continued"}}};
    table.numbers = SIZE_MAX;
    const size_t first = run.samples.size() > kMostSamples ? run.samples.size() - kMostSamples : 0;
    for (size_t i = first; i < run.samples.size(); ++i)
      table.rows.push_back(
          {std::to_string(run.samples[i].step), code(run.samples[i].prompt), code(run.samples[i].text)});
    html += to_html(table);
  }
  return html.empty() ? "" : html_heading("samples", "Samples") + html;
}

std::string settings_section(const RunFolder& run) {
  if (run.record.empty()) return "";
  HtmlTable resolved{.caption = "Resolved values", .rows = {{"key", "value", "reason"}}, .numbers = SIZE_MAX};
  for (const Json& row : rows_of(run.fact("/resolved")))
    resolved.rows.push_back(
        {code(text_in(row, "key")), code(text_in(row, "value")), escape_html(text_in(row, "reason"))});
  HtmlTable set{.caption = "What was set", .rows = {{"key", "value"}}, .numbers = SIZE_MAX};
  for (const auto& [key, value] : run.settings()) set.rows.push_back({code(key), code(value)});
  HtmlTable machine{.caption = "Machine and version", .rows = {{"", ""}}, .numbers = SIZE_MAX};
  machine.rows.push_back({"host", escape_html(run.text("/host"))});
  machine.rows.push_back({"CPU", escape_html(run.text("/machine/cpu"))});
  machine.rows.push_back({"instructions", escape_html(run.text("/machine/isa"))});
  machine.rows.push_back(
      {"cores", fmt::format("{} usable of {}", run.number("/machine/usable_cores"), run.number("/machine/cores"))});
  machine.rows.push_back({"memory", format_bytes(static_cast<int64_t>(run.number("/machine/memory_bytes")))});
  machine.rows.push_back({"100% MFU", escape_html(format_rate(run.number("/run/peak_flops"), "FLOP/s") + ": " +
                                                  run.text("/run/peak_name"))});
  machine.rows.push_back({"nought", escape_html(run.text("/program"))});
  std::string html = fmt::format("<p>To repeat it:</p>\n<pre>cd {}\n{}</pre>\n",
                                 escape_html(quoted(run.text("/directory"))), escape_html(command_of(run)));
  for (const Json& warning : rows_of(run.fact("/warnings")))
    if (warning.is_string())
      html += fmt::format("<p class=\"alarm\">{}</p>\n", escape_html("warning: " + warning.get<std::string>()));
  return html + to_html(machine) + "<details><summary>What was set</summary>\n" + to_html(set) +
         "</details>\n<details><summary>Every resolved value and its reason</summary>\n" + to_html(resolved) +
         "</details>\n";
}

}  // namespace nought
