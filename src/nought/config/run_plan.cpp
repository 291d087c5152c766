#include "nought/config/run_plan.h"

#include <algorithm>

#include <fmt/core.h>

namespace nought {

void require_trainable(const RunPlan& plan) {
  require<ConfigError>(!plan.model_dir.empty() || !plan.model_config.is_null(),
                       "model is missing: expected a Hugging Face folder or the content of its config.json");
  require<ConfigError>(!plan.adapts() || !plan.model_dir.empty(),
                       "{}: an adapter is trained on the weights of a model, and \"model\" is written inline: name a "
                       "folder",
                       plan.adapter_place);
  require<ConfigError>(!plan.data.sources.empty(), "data.files is empty: expected a list of paths or globs");
  require<ConfigError>(plan.layout.seq_length > 0, "data.seq_length is missing: expected the tokens per sequence");
}

std::vector<std::string> describe_mesh(const RunPlan& plan) {
  if (plan.layout.tensor_ranks == 1 && plan.layout.expert_ranks == 1 && plan.layout.pipeline.ranks == 1 &&
      plan.layout.replicas == 1 && plan.layout.context_ranks == 1)
    return {};
  std::vector<std::string> lines = describe(Grid(plan.layout.grid()));
  if (plan.layout.sequence_parallel)
    lines.push_back(fmt::format("{:<12} {:>4}   slices of the tokens between products, over the tensor ranks",
                                "sequence", plan.layout.tensor_ranks));
  return lines;
}

std::string explain(const RunPlan& plan) {
  // A longer value pushes its own reason to the right, not everybody's: with 80 columns most rows are one line.
  constexpr size_t kWidest = 14;
  size_t key_width = 0, value_width = 0;
  for (const Resolved& row : plan.resolved) {
    key_width = std::max(key_width, row.key.size());
    value_width = std::max(value_width, std::min(row.value.size(), kWidest));
  }
  std::string text;
  for (const Resolved& row : plan.resolved)
    text += fmt::format("{:<{}}  {:<{}}  {}\n", row.key, key_width, row.value, value_width, row.reason);
  for (const std::string& warning : plan.warnings) text += fmt::format("warning: {}\n", warning);
  return text;
}

}  // namespace nought
