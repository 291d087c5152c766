#include "nought/report/curves.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "nought/report/run_facts.h"

namespace nought {

namespace {

struct ShownColumn {
  const char *name, *title, *unit;
};
constexpr std::array<ShownColumn, 5> kFirstCharts{{{"loss", "loss", ""},
                                                   {"lr", "learning rate", ""},
                                                   {"grad_norm", "gradient norm", ""},
                                                   {"tokens_per_second", "tokens per second", ""},
                                                   {"mfu", "MFU", "%"}}};
/// Columns that are no curves of their own.
constexpr std::array<std::string_view, 2> kNoCharts{"time", "step"};
constexpr size_t kMostCharts = 24;
constexpr int64_t kMostStretches = 3000, kStretchesOfAllRuns = 9000, kFewestStretches = 300;

/// Seconds since the first row, by rows. A longer gap than 50 steps take is a pause: it counts as one step.
std::vector<double> seconds_by_row(const StepTable& table) {
  std::vector<double> seconds(table.rows(), std::nan(""));
  const std::vector<double>* times = table.find("time");
  if (times == nullptr) return seconds;
  const double longest = longest_step(*times);
  double since = 0;
  for (size_t i = 0; i < times->size(); ++i) {
    const double gap = i == 0 ? 0 : (*times)[i] - (*times)[i - 1];
    if (gap > 0) since += gap < longest ? gap : longest / 50;
    seconds[i] = since;
  }
  return seconds;
}

/// Seconds of a validation: those of the last step before it.
std::vector<double> seconds_of_validations(const RunFolder& run, const std::vector<double>& seconds) {
  std::vector<double> result;
  const std::vector<int64_t>& steps = run.steps.steps();
  for (const int64_t step : run.validations.steps()) {
    const auto after = std::upper_bound(steps.begin(), steps.end(), step);
    const auto row = static_cast<size_t>(after - steps.begin());
    result.push_back(row == 0 ? std::nan("") : seconds[row - 1]);
  }
  return result;
}

/// All rows but those of a stretch that are neither its least nor its greatest number.
std::vector<size_t> rows_to_show(const std::vector<double>& values, int64_t stretches) {
  std::vector<size_t> rows;
  const size_t count = values.size();
  const size_t length = count <= 2 * static_cast<size_t>(stretches) ? 1 : count / static_cast<size_t>(stretches) + 1;
  for (size_t begin = 0; begin < count; begin += length) {
    const size_t end = std::min(count, begin + length);
    size_t least = begin, most = begin;
    for (size_t i = begin; i < end; ++i) {
      if (std::isnan(values[least]) || values[i] < values[least]) least = i;
      if (std::isnan(values[most]) || values[i] > values[most]) most = i;
    }
    rows.push_back(std::min(least, most));
    if (least != most) rows.push_back(std::max(least, most));
  }
  if (count > 0 && rows.back() != count - 1) rows.push_back(count - 1);  // where the run is now
  return rows;
}

bool has_number(const std::vector<double>* values) {
  return values != nullptr && std::any_of(values->begin(), values->end(), [](double v) { return !std::isnan(v); });
}

void add_loss_curves(const RunFolder& run, size_t index, const std::vector<double>& seconds, int64_t stretches,
                     std::vector<Curve>& curves) {
  const auto add = [&](Curve curve, const char* kind) {
    curve.run = index, curve.kind = kind;
    curves.push_back(std::move(curve));
  };
  const std::vector<double>& loss = *run.steps.find("loss");
  if (loss.size() >= 10)
    add(thinned_curve(run.steps, smoothed(loss, std::clamp(static_cast<double>(loss.size()) / 40, 5.0, 500.0)), seconds,
                      stretches),
        "smooth");
  for (const StepTable& table : run.discarded)
    if (const std::vector<double>* values = table.find("loss"); has_number(values))
      add(thinned_curve(table, *values, seconds_by_row(table), stretches), "discarded");
}

CurveChart chart_of(std::span<const RunFolder> runs, const ShownColumn& column, int64_t stretches) {
  CurveChart chart{column.name, column.title, column.unit, {}};
  const bool is_loss = chart.name == "loss";
  for (size_t i = 0; i < runs.size(); ++i) {
    const RunFolder& run = runs[i];
    const std::vector<double> seconds = seconds_by_row(run.steps);
    if (const std::vector<double>* values = run.steps.find(chart.name); has_number(values)) {
      chart.curves.push_back(thinned_curve(run.steps, *values, seconds, stretches));
      chart.curves.back().run = i;
      if (is_loss) add_loss_curves(run, i, seconds, stretches, chart.curves);
    }
    // What a validation has under the same name is the same quantity, but for the seconds that it takes itself.
    const bool is_validated = chart.name != "seconds";
    const std::vector<double>* values = is_validated ? run.validations.find("eval_" + chart.name) : nullptr;
    if (has_number(values)) {
      chart.curves.push_back(thinned_curve(run.validations, *values, seconds_of_validations(run, seconds), stretches));
      chart.curves.back().run = i, chart.curves.back().kind = "validation";
    }
  }
  return chart;
}

/// The columns of any run that have no chart yet, in their order.
std::vector<std::string> other_columns(std::span<const RunFolder> runs) {
  std::vector<std::string> names;
  const auto is_shown = [&](const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end() ||
           std::find(kNoCharts.begin(), kNoCharts.end(), name) != kNoCharts.end() ||
           std::any_of(kFirstCharts.begin(), kFirstCharts.end(), [&](const auto& shown) { return shown.name == name; });
  };
  for (const RunFolder& run : runs)
    for (std::string& name : run.steps.names())
      if (!is_shown(name)) names.push_back(std::move(name));
  return names;
}

}  // namespace

Curve thinned_curve(const StepTable& table, const std::vector<double>& values, const std::vector<double>& seconds,
                    int64_t stretches) {
  Curve curve;
  for (const size_t row : rows_to_show(values, stretches)) {
    curve.steps.push_back(table.steps()[row]);
    curve.seconds.push_back(seconds[row]);
    curve.values.push_back(values[row]);
  }
  return curve;
}

std::vector<double> smoothed(std::span<const double> values, double window) {
  const double weight = 2 / (window + 1);
  double mean = 0, weights = 0;
  std::vector<double> result;
  for (const double value : values) {
    if (std::isfinite(value)) {
      mean += weight * (value - mean);
      weights += weight * (1 - weights);
    }
    result.push_back(weights > 0 ? mean / weights : std::nan(""));
  }
  return result;
}

std::vector<CurveChart> charts_of(std::span<const RunFolder> runs) {
  const auto count = std::max<int64_t>(1, static_cast<int64_t>(runs.size()));
  const int64_t stretches = std::clamp(kStretchesOfAllRuns / count, kFewestStretches, kMostStretches);
  std::vector<CurveChart> charts;
  const auto add = [&](const ShownColumn& column, int64_t most) {
    if (CurveChart chart = chart_of(runs, column, most); !chart.curves.empty() && charts.size() < kMostCharts)
      charts.push_back(std::move(chart));
  };
  for (const ShownColumn& column : kFirstCharts) add(column, stretches);
  for (const std::string& name : other_columns(runs)) {
    const bool is_share = name.ends_with("_hidden");
    add({name.c_str(), name.c_str(), is_share ? "%" : ""}, std::max<int64_t>(kFewestStretches, stretches / 4));
  }
  return charts;
}

}  // namespace nought
