#include "nought/bench/load_report.h"

#include <algorithm>
#include <functional>

#include <nlohmann/json.hpp>

#include "nought/base/error.h"
#include "nought/base/json.h"
#include "nought/base/text.h"
#include "nought/measure/samples.h"

namespace nought {

namespace {

std::optional<LoadQuantiles> quantiles_of(std::vector<double> values) {
  if (values.empty()) return std::nullopt;
  double sum = 0;
  for (const double each : values) sum += each;
  const double mean = sum / static_cast<double>(values.size());
  const Samples samples{std::move(values)};
  return LoadQuantiles{mean, samples.quantile(0.5), samples.quantile(0.95), samples.quantile(0.99)};
}

/// Seconds of one request; without a value where it has too few tokens for one.
struct Times {
  double ttft, e2el;
  std::vector<double> gaps = {};
  std::optional<double> tpot = {};

  explicit Times(const RequestTiming& request)
      : ttft(request.texts.front() - request.begin), e2el(request.texts.back() - request.begin) {
    for (size_t i = 1; i < request.texts.size(); ++i) gaps.push_back(request.texts[i] - request.texts[i - 1]);
    if (request.answer_tokens > 1) tpot = (e2el - ttft) / static_cast<double>(request.answer_tokens - 1);
  }
  bool is_within(const LoadLimits& limits) const {
    const auto holds = [](const std::optional<double>& limit, double value) { return !limit || value <= *limit; };
    return holds(limits.ttft, ttft) && holds(limits.e2el, e2el) && holds(limits.tpot, tpot.value_or(0)) &&
           std::all_of(gaps.begin(), gaps.end(), [&](double gap) { return holds(limits.itl, gap); });
  }
};

std::string name_of(const LoadLevel& level) {
  if (level.rate > 0) return fmt::format("{:g} requests/s", level.rate);
  return fmt::format("{} client{}", level.clients, level.clients == 1 ? "" : "s");
}

struct Row {
  std::string name;
  std::function<std::string(const LoadSummary&)> value;
};

void add_quantiles(std::vector<Row>& rows, const std::string& name, std::optional<LoadQuantiles> LoadSummary::*which) {
  for (const auto& [part, member] : {std::pair{"p50", &LoadQuantiles::p50}, std::pair{"p95", &LoadQuantiles::p95},
                                     std::pair{"p99", &LoadQuantiles::p99}})
    rows.push_back({fmt::format("{} {}, ms", name, part), [which, value = member](const LoadSummary& each) {
                      const auto& quantiles = each.*which;
                      return quantiles ? fmt::format("{:.1f}", (*quantiles).*value * 1000) : std::string("-");
                    }});
}

std::vector<Row> rows_of(const std::vector<LoadSummary>& loads) {
  using Each = const LoadSummary&;
  std::vector<Row> rows{
      {"requests", [](Each each) { return std::to_string(each.completed); }},
      {"failed", [](Each each) { return std::to_string(each.failed); }},
      {"seconds", [](Each each) { return fmt::format("{:.2f}", each.seconds); }},
      {"prompt tokens", [](Each each) { return fmt::format("{:.1f}", each.prompt_tokens); }},
      {"  of them cached", [](Each each) { return fmt::format("{:.1f}", each.cached_tokens); }},
      {"answer tokens", [](Each each) { return fmt::format("{:.1f}", each.answer_tokens); }},
      {"requests/s", [](Each each) { return fmt::format("{:.3f}", each.per_second(1)); }},
      {"prompt tokens/s", [](Each each) { return fmt::format("{:.1f}", each.per_second(each.prompt_tokens)); }},
      {"answer tokens/s", [](Each each) { return fmt::format("{:.1f}", each.per_second(each.answer_tokens)); }}};
  add_quantiles(rows, "TTFT", &LoadSummary::ttft);
  add_quantiles(rows, "ITL", &LoadSummary::itl);
  add_quantiles(rows, "TPOT", &LoadSummary::tpot);
  add_quantiles(rows, "whole answer", &LoadSummary::e2el);
  if (std::any_of(loads.begin(), loads.end(), [](Each each) { return each.good.has_value(); }))
    rows.push_back({"goodput, requests/s", [](Each each) { return fmt::format("{:.3f}", each.goodput()); }});
  return rows;
}

OrderedJson to_json(const std::optional<LoadQuantiles>& quantiles) {
  if (!quantiles) return nullptr;
  return {{"mean", quantiles->mean}, {"p50", quantiles->p50}, {"p95", quantiles->p95}, {"p99", quantiles->p99}};
}

}  // namespace

LoadLimits parse_load_limits(const std::string& text) {
  LoadLimits limits;
  if (text.empty()) return limits;
  for (const std::string& part : split(text, ',')) {
    const size_t colon = std::min(part.find(':'), part.size());
    const std::string name = part.substr(0, colon);
    std::optional<double>* limit = name == "ttft"   ? &limits.ttft
                                   : name == "itl"  ? &limits.itl
                                   : name == "tpot" ? &limits.tpot
                                   : name == "e2el" ? &limits.e2el
                                                    : nullptr;
    char* end = nullptr;
    const double value = colon < part.size() ? std::strtod(part.c_str() + colon + 1, &end) : 0;
    require<ConfigError>(limit && end && *end == '\0' && value > 0 && value < 1e9,
                         "--goodput {}: expected milliseconds of ttft, itl, tpot or e2el, as ttft:2000,itl:100", part);
    *limit = value / 1000;
  }
  return limits;
}

LoadSummary summarize(const LoadRun& run, const LoadLimits& limits) {
  LoadSummary summary{.level = run.level, .seconds = run.seconds};
  std::vector<double> ttft, itl, tpot, e2el;
  int64_t good = 0;
  for (const RequestTiming& request : run.requests) {
    if (!request.error.empty()) {
      if (summary.failed++ == 0) summary.first_error = request.error;
      continue;
    }
    ++summary.completed;
    summary.prompt_tokens += static_cast<double>(request.prompt_tokens);
    summary.cached_tokens += static_cast<double>(request.cached_tokens);
    summary.answer_tokens += static_cast<double>(request.answer_tokens);
    const Times times(request);
    ttft.push_back(times.ttft);
    e2el.push_back(times.e2el);
    itl.insert(itl.end(), times.gaps.begin(), times.gaps.end());
    if (times.tpot) tpot.push_back(*times.tpot);
    good += times.is_within(limits);
  }
  const auto count = static_cast<double>(std::max<int64_t>(summary.completed, 1));
  for (double* sum : {&summary.prompt_tokens, &summary.cached_tokens, &summary.answer_tokens}) *sum /= count;
  summary.ttft = quantiles_of(std::move(ttft));
  summary.itl = quantiles_of(std::move(itl));
  summary.tpot = quantiles_of(std::move(tpot));
  summary.e2el = quantiles_of(std::move(e2el));
  if (limits.any()) summary.good = good;
  return summary;
}

std::string to_table(const std::vector<LoadSummary>& loads) {
  std::string table = fmt::format("{:<20}", "");
  for (const LoadSummary& each : loads) table += fmt::format("  {:>14}", name_of(each.level));
  table += '\n';
  for (const Row& row : rows_of(loads)) {
    table += fmt::format("{:<20}", row.name);
    for (const LoadSummary& each : loads) table += fmt::format("  {:>14}", row.value(each));
    table += '\n';
  }
  return table;
}

OrderedJson to_json(const std::vector<LoadSummary>& loads) {
  OrderedJson list = OrderedJson::array();
  for (const LoadSummary& each : loads) {
    OrderedJson json;
    json[each.level.rate > 0 ? "rate" : "clients"] =
        each.level.rate > 0 ? OrderedJson(each.level.rate) : OrderedJson(each.level.clients);
    json.update({{"completed", each.completed},
                 {"failed", each.failed},
                 {"seconds", each.seconds},
                 {"prompt_tokens", each.prompt_tokens},
                 {"cached_tokens", each.cached_tokens},
                 {"answer_tokens", each.answer_tokens},
                 {"requests_per_second", each.per_second(1)},
                 {"prompt_tokens_per_second", each.per_second(each.prompt_tokens)},
                 {"answer_tokens_per_second", each.per_second(each.answer_tokens)},
                 {"ttft_seconds", to_json(each.ttft)},
                 {"itl_seconds", to_json(each.itl)},
                 {"tpot_seconds", to_json(each.tpot)},
                 {"e2el_seconds", to_json(each.e2el)}});
    if (each.good) {
      json["good"] = *each.good;
      json["goodput_per_second"] = each.goodput();
    }
    if (each.failed > 0) json["first_error"] = each.first_error;
    list.push_back(std::move(json));
  }
  return list;
}

}  // namespace nought
