#include "nought/cli/plan_elastic.h"

#include <optional>

#include <fmt/format.h>

#include "nought/base/error.h"
#include "nought/base/host.h"
#include "nought/base/lines.h"
#include "nought/base/text.h"
#include "nought/cli/launch_job.h"
#include "nought/io/file_format.h"
#include "nought/plan/budgets.h"
#include "nought/plan/predict.h"
#include "nought/train/trainer.h"
#include "nought/weights/model_source.h"

namespace nought {

namespace {

constexpr FileFormat kElasticFormat{"nought-elastic", 1};

struct Row {
  ElasticRanks::Choice choice;
  int64_t micro_batch = 0, accumulation = 0, bytes = 0;
  bool fits = false;
  std::string refusal = {};  // why the run cannot have this number
};

Row row_of(const ElasticRanks::Choice& choice, const std::function<RunPlan(const ElasticRanks::Choice&)>& plan_of) {
  Row row{.choice = choice};
  try {
    const RunPlan plan = plan_of(choice);
    row.micro_batch = plan.layout.micro_batch, row.accumulation = plan.layout.accumulation;
    const Prediction prediction = predict(model_config_of(plan), layout_of(plan));
    row.bytes = prediction.most().ram_peak > 0 && !plan.layout.on_gpu() ? prediction.most().ram_peak
                                                                        : prediction.most().peak_total;
    const MemoryBudgets budgets = budgets_of(plan);
    row.fits = budgets.none() ? plan.layout.on_gpu() || row.bytes * plan.layout.ranks <= memory_of_machine()
                              : budgets.hold(prediction.most());
  } catch (const ConfigError& refusal) {
    row.refusal = refusal.what();
  }
  return row;
}

OrderedJson json_of(const Row& row) {
  OrderedJson json{{"ranks", row.choice.ranks}};
  if (!row.refusal.empty()) {
    json["refused"] = row.refusal;
    return json;
  }
  json["micro_batch"] = row.micro_batch, json["accumulation"] = row.accumulation;
  json["memory_bytes"] = row.bytes, json["fits"] = row.fits;
  json["set"] = row.choice.settings;
  return json;
}

std::string text_of(const std::vector<Row>& rows) {
  Table table{.ranks = {0, 0, 0, 0}, .rows = {{"ranks", "micro-batch", "accumulation", "memory of a rank", "fits"}}};
  std::string refusals;
  for (const Row& row : rows) {
    const std::string ranks = fmt::format("{}", row.choice.ranks);
    if (row.refusal.empty()) {
      table.rows.push_back({ranks, fmt::format("{}", row.micro_batch), fmt::format("{}", row.accumulation),
                            format_bytes(row.bytes), row.fits ? "yes" : "no"});
    } else {
      refusals += fmt::format("{} ranks: {}\n", ranks, row.refusal);
    }
  }
  return fit_table(table, stdout_columns()) + wrap(refusals, stdout_columns(), 4);
}

}  // namespace

void print_elastic(const ElasticRanks& ranks, const std::function<RunPlan(const ElasticRanks::Choice&)>& plan_of,
                   bool json) {
  std::vector<Row> rows;
  for (const ElasticRanks::Choice& choice : ranks.choices) rows.push_back(row_of(choice, plan_of));
  const char* why = ranks.by_section ? "elasticity" : "what divides the global batch";
  if (!json) {
    fmt::print("global batch {} at any of these numbers of ranks, by {}\n{}", ranks.train_batch, why, text_of(rows));
    return;
  }
  OrderedJson counts = OrderedJson::array();
  for (const Row& row : rows) counts.push_back(json_of(row));
  OrderedJson result{{"format", kElasticFormat.str()}};
  result["train_batch"] = ranks.train_batch, result["by"] = why;
  result["ranks_that_share_a_model"] = ranks.sharing, result["counts"] = std::move(counts);
  fmt::print("{}\n", result.dump(2));
}

}  // namespace nought
