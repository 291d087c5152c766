#include "nought/plan/advice_flags.h"

#include "nought/base/error.h"

namespace nought {

namespace {

using Settings = std::vector<std::string>;

/// Each way to say one change; the first that does not contradict the run counts.
using Ways = std::vector<Settings>;

Ways ways_of_batch(const Layout& to) {
  const auto here = fmt::format("training.per_device_train_batch_size={}", to.micro_batch);
  const auto here_steps = fmt::format("training.gradient_accumulation_steps={}", to.accumulation);
  const auto there = fmt::format("deepspeed.train_micro_batch_size_per_gpu={}", to.micro_batch);
  const auto there_steps = fmt::format("deepspeed.gradient_accumulation_steps={}", to.accumulation);
  return {{here, here_steps},
          {there, there_steps},
          {here, there_steps},
          {there, here_steps},
          {here, here_steps, there, there_steps}};
}

/// A run that says gradient_checkpointing has that one undone.
Ways ways_of_recompute(const Layout& to) {
  Settings settings{fmt::format("training.recompute={}", name_of(to.recompute.mode))};
  if (to.recompute.tier.pool == Pool::host)
    settings.emplace_back("deepspeed.activation_checkpointing.cpu_checkpointing=true");
  if (to.recompute.tier.pool == Pool::file) settings.emplace_back("training.offload_inputs=file");
  Settings undone{"training.gradient_checkpointing=null"};
  undone.insert(undone.end(), settings.begin(), settings.end());
  return {settings, undone};
}

/// States and parameters in files; a folder that the run names stays.
Ways ways_of_files(const char* section, const std::string& folder) {
  const std::string path = fmt::format("deepspeed.zero_optimization.{}.", section);
  return {{path + "device=nvme"}, {path + "device=nvme", path + "nvme_path=" + folder}};
}

/// All changes, each with its ways.
std::vector<Ways> changes_between(const Layout& from, const Layout& to, const std::string& folder) {
  std::vector<Ways> changes;
  const auto add = [&](bool changed, Ways ways) {
    if (changed) changes.push_back(std::move(ways));
  };
  if (to.freezing.codes && !from.freezing.codes)
    changes.push_back(
        {{"quantization_config.load_in_4bit=true",
          fmt::format("quantization_config.bnb_4bit_quant_type={}", name_of(to.freezing.codes->kind)),
          fmt::format("quantization_config.bnb_4bit_use_double_quant={}", to.freezing.codes->double_quantized)}});
  add(to.zero_stage != from.zero_stage, {{fmt::format("deepspeed.zero_optimization.stage={}", to.zero_stage)}});
  const auto moves = [&](Pool before, Pool after) { return after == Pool::file && before != Pool::file; };
  add(moves(from.sharding.offload_optimizer.tier.pool, to.sharding.offload_optimizer.tier.pool),
      ways_of_files("offload_optimizer", folder));
  if (moves(from.sharding.offload_param.tier.pool, to.sharding.offload_param.tier.pool)) {
    changes.push_back(ways_of_files("offload_param", folder));
    changes.push_back({{"deepspeed.zero_optimization.offload_param.max_in_cpu=0"}});
  }
  add(to.recompute.mode != from.recompute.mode || to.recompute.tier.pool != from.recompute.tier.pool,
      ways_of_recompute(to));
  add(to.recompute.mlp_tiles != from.recompute.mlp_tiles, {{"training.tiled_mlp=auto"}});
  add(to.recompute.unit_tiles != from.recompute.unit_tiles,
      {{fmt::format("training.memory_centric_tiling={}", to.recompute.unit_tiles)}});
  add(to.micro_batch != from.micro_batch || to.accumulation != from.accumulation, ways_of_batch(to));
  const bool follow = to.evaluation_follows && to.evaluation_rows == to.micro_batch;
  add(to.evaluation_rows != from.evaluation_rows && !follow,
      {{fmt::format("training.per_device_eval_batch_size={}", to.evaluation_rows)}});
  return changes;
}

/// A text that a shell takes for one word.
std::string word_of(const std::string& text) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./=,:@%+";
  if (text.find_first_not_of(kPlain) == std::string::npos) return text;
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

}  // namespace

std::optional<std::vector<std::string>> settings_of(const Layout& from, const Layout& to, const std::string& folder,
                                                    const RunWith& run_with,
                                                    const std::function<bool(const RunPlan&)>& fits) {
  const std::vector<Ways> changes = changes_between(from, to, folder);
  std::vector<size_t> chosen(changes.size(), 0);  // the way of each change, counted up like a number
  while (true) {
    Settings settings;
    for (size_t i = 0; i < changes.size(); ++i)
      settings.insert(settings.end(), changes[i][chosen[i]].begin(), changes[i][chosen[i]].end());
    try {
      const RunPlan plan = run_with(settings);
      if (plan.layout.micro_batch == to.micro_batch && plan.layout.accumulation == to.accumulation && fits(plan))
        return settings;
    } catch (const ConfigError&) {  // contradicts the run
    }
    size_t digit = 0;
    while (digit < changes.size() && ++chosen[digit] == changes[digit].size()) chosen[digit++] = 0;
    if (digit == changes.size()) return std::nullopt;
  }
}

std::string flags_of(const std::vector<std::string>& settings) {
  std::string flags;
  for (const std::string& each : settings) flags += fmt::format("{}--set {}", flags.empty() ? "" : " ", word_of(each));
  return flags;
}

}  // namespace nought
