#include "nought/report/compare.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>

#include "nought/base/error.h"
#include "nought/base/lines.h"
#include "nought/base/text.h"
#include "nought/report/run_facts.h"

namespace nought {

namespace {

/// Where a run writes. Two runs never write to one place.
constexpr std::array<std::string_view, 4> kPlaces{"training.output_dir", "training.logging_dir", "output_dir",
                                                  "training.run_name"};

using Values = std::map<std::string, std::vector<std::string>, std::less<>>;

/// Takes the rows of which not all values are the same.
std::vector<ComparedRow> differing(const Values& values) {
  std::vector<ComparedRow> rows;
  for (const auto& [name, each] : values) {
    const bool same = std::equal(each.begin() + 1, each.end(), each.begin());
    if (!same && std::find(kPlaces.begin(), kPlaces.end(), name) == kPlaces.end()) rows.push_back({name, each});
  }
  return rows;
}

Values settings_of(std::span<const RunFolder> runs) {
  Values values;
  for (size_t i = 0; i < runs.size(); ++i)
    for (auto& [key, value] : runs[i].settings()) {
      values[key].resize(runs.size());
      values[key][i] = value;
    }
  return values;
}

/// The resolved values of each run. What a setting of `told` is the reason of is left out: its row says the same.
Values resolved_of(std::span<const RunFolder> runs, const std::vector<ComparedRow>& told) {
  Values values;
  std::set<std::string, std::less<>> left_out;
  for (size_t i = 0; i < runs.size(); ++i)
    for (const Json& row : rows_of(runs[i].fact("/resolved"))) {
      const std::string key = text_in(row, "key"), reason = text_in(row, "reason");
      const auto explains = [&](const ComparedRow& setting) { return reason.find(setting.name) != std::string::npos; };
      if (std::any_of(told.begin(), told.end(), explains)) left_out.insert(key);
      values[key].resize(runs.size());
      values[key][i] = text_in(row, "value");
    }
  for (const std::string& key : left_out) values.erase(key);
  return values;
}

/// How far apart two losses are, relative to the first. A number and none, or two infinities of different signs, are
/// infinitely far apart.
double distance(double a, double b) {
  if (a == b || (std::isnan(a) && std::isnan(b))) return 0;
  if (!std::isfinite(a) || !std::isfinite(b)) return std::numeric_limits<double>::infinity();
  return std::abs(a - b) / std::max(std::abs(a), std::numeric_limits<double>::min());
}

OrderedJson to_json(const std::vector<ComparedRow>& rows) {
  OrderedJson json = OrderedJson::object();
  for (const ComparedRow& row : rows) json[row.name] = row.values;
  return json;
}

OrderedJson to_json(const std::optional<LossPair>& pair) {
  return pair ? OrderedJson{{"step", pair->step}, {"losses", {pair->first, pair->other}}} : OrderedJson();
}

OrderedJson to_json(const LossComparison& losses) {
  OrderedJson json{{"common_steps", losses.steps},
                   {"equal", losses.equal()},
                   {"first_difference", to_json(losses.bits)},
                   {"first_beyond_tolerance", to_json(losses.beyond)}};
  json["largest_difference"] = losses.equal() ? OrderedJson() : to_json(std::optional(losses.most));
  return json;
}

std::string to_text(const LossPair& pair) { return fmt::format("{} and {}", pair.first, pair.other); }

/// "b: equal to the bit in all 60 common steps", or where it differs.
std::string to_text(const LossComparison& losses, const std::string& name, std::string_view of) {
  if (losses.equal()) return fmt::format("{}: equal to the bit in all {} common {}", name, losses.steps, of);
  std::string text = fmt::format("{}: differs first at step {}: {}", name, losses.bits->step, to_text(*losses.bits));
  text += losses.beyond ? fmt::format("; by more than {} at step {}: {}", kLossTolerance, losses.beyond->step,
                                      to_text(*losses.beyond))
                        : fmt::format("; nowhere by more than {}", kLossTolerance);
  return text +
         fmt::format("; most at step {}: {}; {} common {}", losses.most.step, to_text(losses.most), losses.steps, of);
}

std::string table_text(const std::vector<ComparedRow>& rows, const std::vector<std::string>& names, int width) {
  Table table{.ranks = {}, .rows = {{""}}};
  table.rows[0].insert(table.rows[0].end(), names.begin(), names.end());
  for (const ComparedRow& row : rows) {
    table.rows.push_back({"  " + row.name});
    for (const std::string& value : row.values) table.rows.back().push_back(value.empty() ? "-" : one_line(value));
  }
  table.ranks.assign(names.size(), 0);
  return fit_table(table, width);
}

std::string range_of(const RunFolder& run) {
  return run.steps.empty()
             ? fmt::format("{} has none", run.name)
             : fmt::format("{} has {} to {}", run.name, run.steps.steps().front(), run.steps.steps().back());
}

}  // namespace

std::vector<ComparedRow> differing_settings(std::span<const RunFolder> runs) {
  std::vector<ComparedRow> rows = differing(settings_of(runs));
  for (ComparedRow& row : differing(resolved_of(runs, rows))) rows.push_back(std::move(row));
  return rows;
}

std::vector<ComparedRow> measured_rows(std::span<const RunFolder> runs) {
  std::vector<ComparedRow> rows;
  for (const RunFigure& figure : run_figures()) {
    ComparedRow row{figure.name, {}};
    for (const RunFolder& run : runs) row.values.push_back(figure.text(run));
    const auto has_text = [](const std::string& value) { return !value.empty(); };
    if (std::any_of(row.values.begin(), row.values.end(), has_text)) rows.push_back(std::move(row));
  }
  return rows;
}

LossComparison compare_losses(const StepTable& first, const StepTable& other, const std::string& column) {
  LossComparison result;
  const std::vector<double>*a = first.find(column), *b = other.find(column);
  if (a == nullptr || b == nullptr) return result;
  double most = 0;
  for (size_t i = 0, j = 0; i < first.rows() && j < other.rows();) {
    const int64_t left = first.steps()[i], right = other.steps()[j];
    if (left == right) {
      const LossPair pair{left, (*a)[i], (*b)[j]};
      const double apart = distance(pair.first, pair.other);
      ++result.steps;
      if (apart > 0 && !result.bits) result.bits = pair;
      if (apart > kLossTolerance && !result.beyond) result.beyond = pair;
      if (apart > most) most = apart, result.most = pair;
    }
    i += left <= right, j += right <= left;
  }
  return result;
}

bool Comparison::differs() const {
  const auto differs = [](const LossComparison& each) { return !each.equal(); };
  return !settings.empty() || std::any_of(losses.begin(), losses.end(), differs) ||
         std::any_of(validations.begin(), validations.end(), differs);
}

Comparison compare_runs(std::span<const RunFolder> runs) {
  require<ConfigError>(runs.size() >= 2, "there is one run, {}: give two or more to compare",
                       runs.empty() ? "of no name" : runs.front().name);
  Comparison result;
  for (const RunFolder& run : runs) result.names.push_back(run.name);
  for (const RunFolder& run : runs.subspan(1)) {
    result.losses.push_back(compare_losses(runs.front().steps, run.steps, "loss"));
    result.validations.push_back(compare_losses(runs.front().validations, run.validations, "eval_loss"));
    require<ConfigError>(result.losses.back().steps > 0, "the runs have no step in common: {}, {}",
                         range_of(runs.front()), range_of(run));
  }
  result.settings = differing_settings(runs);
  result.measured = measured_rows(runs);
  return result;
}

std::string to_text(const Comparison& comparison, int width) {
  const std::vector<std::string>& names = comparison.names;
  std::string text = comparison.settings.empty() ? "settings: no difference\n"
                                                 : "settings\n" + table_text(comparison.settings, names, width);
  text += fmt::format("\nlosses, beside {}\n", names.front());
  for (size_t i = 0; i < comparison.losses.size(); ++i) {
    text += wrap("  " + to_text(comparison.losses[i], names[i + 1], "steps"), width, 4) + "\n";
    if (comparison.validations[i].steps > 0)
      text += wrap("  " + to_text(comparison.validations[i], names[i + 1], "validations"), width, 4) + "\n";
  }
  return text + "\nspeed and memory\n" + table_text(comparison.measured, names, width);
}

OrderedJson to_json(const Comparison& comparison) {
  OrderedJson json{{"format", kCompareFormat.str()}, {"runs", comparison.names}, {"differs", comparison.differs()}};
  json["settings"] = to_json(comparison.settings);
  for (size_t i = 0; i < comparison.losses.size(); ++i)
    json["losses"].push_back({{"run", comparison.names[i + 1]},
                              {"steps", to_json(comparison.losses[i])},
                              {"validations", to_json(comparison.validations[i])}});
  json["measured"] = to_json(comparison.measured);
  return json;
}

}  // namespace nought
