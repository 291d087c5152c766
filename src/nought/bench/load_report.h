// LoadSummary: what a load got from a server, as people compare it: TTFT, ITL, TPOT, tokens/s and goodput.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "nought/base/json_fwd.h"
#include "nought/bench/load.h"
#include "nought/io/file_format.h"

namespace nought {

/// Seconds within which a request must stay to count in the goodput.
struct LoadLimits {
  std::optional<double> ttft = {}, itl = {}, tpot = {}, e2el = {};
  bool any() const { return ttft || itl || tpot || e2el; }
};
/// vLLM's form with commas, in milliseconds: "ttft:2000,tpot:100". ConfigError names what is not known.
LoadLimits parse_load_limits(const std::string& text);

struct LoadQuantiles {
  double mean = 0, p50 = 0, p95 = 0, p99 = 0;
};

struct LoadSummary {
  LoadLevel level;
  int64_t completed = 0, failed = 0;
  std::string first_error = {};
  double seconds = 0;
  double prompt_tokens = 0, cached_tokens = 0, answer_tokens = 0;  // means over the requests that were completed
  // Seconds: to the first text, between texts, for a token behind the first one, and to the end of the answer.
  std::optional<LoadQuantiles> ttft = {}, itl = {}, tpot = {}, e2el = {};
  std::optional<int64_t> good = {};  // requests that stayed within the limits

  double per_second(double each) const { return rate(each * static_cast<double>(completed)); }
  /// Good requests/s; 0 without limits.
  double goodput() const { return rate(static_cast<double>(good.value_or(0))); }

 private:
  double rate(double count) const { return seconds > 0 ? count / seconds : 0; }
};

LoadSummary summarize(const LoadRun& run, const LoadLimits& limits);

/// A column for each load.
std::string to_table(const std::vector<LoadSummary>& loads);
inline constexpr FileFormat kLoadReportFormat{"nought-bench-serve", 1};
OrderedJson to_json(const std::vector<LoadSummary>& loads);

}  // namespace nought
