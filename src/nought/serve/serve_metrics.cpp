#include "nought/serve/serve_metrics.h"

#include <algorithm>

#include <fmt/format.h>

namespace nought {

void Histogram::add(double value) {
  ++counts_[static_cast<size_t>(std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin())];
  ++count_;
  sum_ += value;
}

std::string Histogram::lines(const std::string& name, const std::string& labels) const {
  std::string text = fmt::format("# TYPE {} histogram\n", name);
  int64_t sum = 0;
  for (size_t i = 0; i < bounds_.size(); ++i)
    text += fmt::format("{}_bucket{{{},le=\"{}\"}} {}\n", name, labels, bounds_[i], sum += counts_[i]);
  return text + fmt::format("{0}_bucket{{{1},le=\"+Inf\"}} {2}\n{0}_sum{{{1}}} {3}\n{0}_count{{{1}}} {2}\n", name,
                            labels, count_, sum_);
}

std::string finished_reason(FinishReason reason) {
  switch (reason) {
    case FinishReason::stop:
      return "stop";
    case FinishReason::length:
      return "length";
    case FinishReason::cancelled:
      return "abort";
    case FinishReason::failed:
      break;
  }
  return "error";
}

void ServeMetrics::first_token(double seconds) {
  const std::lock_guard lock(mutex_);
  first_token_.add(seconds);
}

void ServeMetrics::token_after(double seconds) {
  const std::lock_guard lock(mutex_);
  between_.add(seconds);
}

void ServeMetrics::request_ended(FinishReason reason, double seconds, int64_t prompt_tokens, int64_t new_tokens) {
  const std::lock_guard lock(mutex_);
  whole_.add(seconds);
  ++ended_[finished_reason(reason)];
  prompt_tokens_ += prompt_tokens;
  new_tokens_ += new_tokens;
}

std::string ServeMetrics::page(const std::string& model, const InferenceEngine::Counts& counts,
                               int64_t cache_tokens) const {
  const std::lock_guard lock(mutex_);
  std::string quoted;
  for (const char each : model)
    quoted += each == '"' || each == '\\' ? fmt::format("\\{}", each) : std::string(1, each);
  const std::string labels = fmt::format("model_name=\"{}\"", quoted);
  std::string page;
  const auto add = [&](const char* name, const char* type, auto value) {
    page += fmt::format("# TYPE nought:{0} {1}\nnought:{0}{{{2}}} {3}\n", name, type, labels, value);
  };
  add("num_requests_running", "gauge", counts.running);
  add("num_requests_waiting", "gauge", counts.waiting);
  add("kv_cache_usage_perc", "gauge", static_cast<double>(counts.cached_tokens) / static_cast<double>(cache_tokens));
  add("prefix_cache_queries_total", "counter", counts.prompt_tokens);
  add("prefix_cache_hits_total", "counter", counts.reused_tokens);
  add("spec_decode_num_drafts_total", "counter", counts.speculated.drafts);
  add("spec_decode_num_draft_tokens_total", "counter", counts.speculated.guessed);
  add("spec_decode_num_accepted_tokens_total", "counter", counts.speculated.accepted);
  if (!counts.speculated.accepted_at.empty())
    page += "# TYPE nought:spec_decode_num_accepted_tokens_per_pos_total counter\n";
  for (size_t i = 0; i < counts.speculated.accepted_at.size(); ++i)
    page += fmt::format("nought:spec_decode_num_accepted_tokens_per_pos_total{{{},position=\"{}\"}} {}\n", labels, i,
                        counts.speculated.accepted_at[i]);
  add("prompt_tokens_total", "counter", prompt_tokens_);
  add("generation_tokens_total", "counter", new_tokens_);
  page += "# TYPE nought:request_success_total counter\n";
  for (const auto& [reason, count] : ended_)
    page += fmt::format("nought:request_success_total{{{},finished_reason=\"{}\"}} {}\n", labels, reason, count);
  return page + first_token_.lines("nought:time_to_first_token_seconds", labels) +
         between_.lines("nought:inter_token_latency_seconds", labels) +
         whole_.lines("nought:e2e_request_latency_seconds", labels);
}

}  // namespace nought
