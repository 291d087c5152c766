#include "nought/report/run_facts.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "nought/base/text.h"

namespace nought {

namespace {

/// The text of a number; "" for NaN.
template <class F>
std::string if_known(double value, F&& text) {
  return std::isnan(value) ? "" : text(value);
}

std::string bytes_text(double bytes) { return bytes > 0 ? format_bytes(static_cast<int64_t>(bytes)) : ""; }

/// The largest peak of the ranks in a list of the record, "/measured/memory".
double peak_of(const RunFolder& run, std::string_view list) {
  double peak = 0;
  for (const Json& rank : rows_of(run.fact(list))) peak = std::max(peak, number_in(rank, "peak_total"));
  return peak;
}

double median_of(const StepTable& table, std::string_view column) {
  const std::vector<double>* values = table.find(column);
  return values == nullptr ? std::nan("") : nought::median_of(*values);
}

/// The seconds of a step in the middle: those of the record's tokens at the rate of the steps.
double step_seconds(const RunFolder& run) {
  const double tokens = run.number("/run/tokens_per_step"), rate = median_of(run.steps, "tokens_per_second");
  return tokens > 0 && rate > 0 ? tokens / rate : std::nan("");
}

std::string steps_text(const RunFolder& run) {
  const int64_t made = run.steps.empty() ? 0 : run.steps.steps().back();
  const auto all = static_cast<int64_t>(run.number("/run/max_steps"));
  return all > 0 ? fmt::format("{}/{}", made, all) : fmt::format("{}", made);
}

std::string seconds_text(double seconds) {
  return seconds < 1 ? fmt::format("{:.3g} ms", 1e3 * seconds) : fmt::format("{:.3g} s", seconds);
}

double best_of(const StepTable& table, std::string_view column) {
  const std::vector<double>* values = table.find(column);
  double best = std::nan("");
  for (const double value : values == nullptr ? std::vector<double>() : *values) best = std::fmin(best, value);
  return best;
}

std::vector<RunFigure> make_figures() {
  const auto loss = [](double value) { return fmt::format("{:.4f}", value); };
  return {
      {"state", [](const RunFolder& run) { return std::string(name_of(run.state)); }},
      {"steps", steps_text},
      {"time of the steps",
       [](const RunFolder& run) {
         const double seconds = seconds_of_run(run);
         return seconds > 0 ? format_duration(seconds) : "";
       }},
      {"last loss", [=](const RunFolder& run) { return if_known(run.steps.last("loss"), loss); }},
      {"last validation loss", [=](const RunFolder& run) { return if_known(run.validations.last("eval_loss"), loss); }},
      {"best validation loss",
       [=](const RunFolder& run) { return if_known(best_of(run.validations, "eval_loss"), loss); }},
      {"tokens/s (median)",
       [](const RunFolder& run) {
         return if_known(median_of(run.steps, "tokens_per_second"), [](double v) { return format_count(v); });
       }},
      {"step (median)", [](const RunFolder& run) { return if_known(step_seconds(run), seconds_text); }},
      {"step, predicted",
       [](const RunFolder& run) {
         const double seconds = run.number("/predicted/step_seconds");
         return seconds > 0 ? seconds_text(seconds) : "";
       }},
      {"MFU (median)",
       [](const RunFolder& run) {
         return if_known(median_of(run.steps, "mfu"), [](double v) { return fmt::format("{:.1f}%", 100 * v); });
       }},
      {"sent per step (median)", [](const RunFolder& run) { return bytes_text(median_of(run.steps, "bytes_sent")); }},
      {"peak memory of a rank", [](const RunFolder& run) { return bytes_text(peak_of(run, "/measured/memory")); }},
      {"peak memory, predicted", [](const RunFolder& run) { return bytes_text(peak_of(run, "/predicted/memory")); }},
      {"ranks",
       [](const RunFolder& run) {
         const double ranks = run.number("/run/world_size");
         return ranks > 0 ? fmt::format("{}", ranks) : "";
       }},
      {"machine", [](const RunFolder& run) { return run.text("/machine/cpu"); }},
      {"program", [](const RunFolder& run) { return run.text("/program"); }},
  };
}

}  // namespace

std::vector<MemoryRow> memory_rows(const RunFolder& run) {
  std::vector<MemoryRow> rows;
  const std::vector<Json>&predicted = rows_of(run.fact("/predicted/memory")),
        &measured = rows_of(run.fact("/measured/memory"));
  for (size_t i = 0; i < predicted.size(); ++i)
    rows.push_back({predicted.size() == 1 ? "predicted" : fmt::format("predicted, place {}", i), &predicted[i]});
  for (size_t i = 0; i < measured.size(); ++i) rows.push_back({fmt::format("rank {}, measured", i), &measured[i]});
  return rows;
}

const std::vector<Json>& rows_of(const Json& list) {
  static const std::vector<Json> none;
  const auto* rows = list.get_ptr<const Json::array_t*>();
  return rows == nullptr ? none : *rows;
}

double median_of(std::span<const double> values) {
  std::vector<double> known;
  std::copy_if(values.begin(), values.end(), std::back_inserter(known), [](double v) { return !std::isnan(v); });
  if (known.empty()) return std::nan("");
  const auto middle = known.begin() + static_cast<std::ptrdiff_t>((known.size() - 1) / 2);
  std::nth_element(known.begin(), middle, known.end());
  return *middle;
}

const std::vector<RunFigure>& run_figures() {
  static const std::vector<RunFigure> figures = make_figures();
  return figures;
}

std::string describe_run(const RunFolder& run) {
  if (run.text("/run/family").empty()) return "A run of which only metrics.jsonl is there.";
  const double ranks = run.number("/run/world_size", 1);
  return fmt::format("{} with {} parameters in {}, {} rank{}, ZeRO stage {}, from {}", run.text("/run/family"),
                     format_count(run.number("/run/parameters")), run.text("/run/dtype"), ranks, ranks == 1 ? "" : "s",
                     run.number("/run/zero_stage"), run.text("/run/start"));
}

double longest_step(std::span<const double> times) {
  std::vector<double> gaps;
  for (size_t i = 1; i < times.size(); ++i) gaps.push_back(times[i] - times[i - 1]);
  return std::max(60.0, gaps.empty() ? 0 : 50 * median_of(gaps));
}

double seconds_of_run(const RunFolder& run) {
  const std::vector<double>* times = run.steps.find("time");
  if (times == nullptr) return 0;
  const double longest = longest_step(*times);
  double seconds = 0;
  for (size_t i = 1; i < times->size(); ++i)
    if (const double gap = (*times)[i] - (*times)[i - 1]; gap > 0 && gap < longest) seconds += gap;
  return seconds;
}

}  // namespace nought
