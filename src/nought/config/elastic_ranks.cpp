#include "nought/config/elastic_ranks.h"

#include <algorithm>

#include "nought/config/ds_config.h"
#include "nought/config/elasticity.h"
#include "nought/config/run_plan.h"

namespace nought {

namespace {

ElasticRanks by_section(const RunConfig& config, const DsElasticity& section, int ranks) {
  const ElasticBatch batch = elastic_batch(section, config.origins.place("deepspeed.elasticity"));
  ElasticRanks result{.train_batch = batch.train_batch, .by_section = true};
  result.sharing = section.version.value < 0.2 ? 1 : static_cast<int>(section.model_parallel_size.value);
  if (ranks > 0) {
    RunConfig plain = config;  // the batch of these ranks does not matter here
    plain.deepspeed["elasticity"]["enabled"] = false;
    const Layout layout = resolve(plain, ranks).layout;
    result.sharing = layout.ranks / layout.data_ranks();
  }
  for (const int64_t data : batch.data_ranks) result.choices.push_back({static_cast<int>(data) * result.sharing, {}});
  return result;
}

/// The values by which the run's files and its training section give this batch, whichever of them give it now.
std::vector<std::string> settings_of(const RunConfig& config, int64_t micro_batch, int64_t accumulation) {
  std::vector<std::string> settings{fmt::format("training.per_device_train_batch_size={}", micro_batch),
                                    fmt::format("training.gradient_accumulation_steps={}", accumulation)};
  const auto also = [&](const char* key, int64_t value) {
    if (!config.deepspeed.is_object()) return;
    const auto it = config.deepspeed.find(key);
    if (it != config.deepspeed.end() && it->is_number()) settings.push_back(fmt::format("deepspeed.{}={}", key, value));
  };
  also("train_micro_batch_size_per_gpu", micro_batch);
  also("gradient_accumulation_steps", accumulation);
  return settings;
}

ElasticRanks by_batch(const RunConfig& config, int ranks) {
  const Layout layout = resolve(config, std::max(ranks, 1)).layout;
  ElasticRanks result{.train_batch = layout.train_batch(), .sharing = layout.ranks / layout.data_ranks()};
  for (int64_t data = 1; data <= result.train_batch; ++data) {
    if (result.train_batch % data != 0) continue;
    ElasticRanks::Choice choice{static_cast<int>(data) * result.sharing, {}};
    const int64_t rows = result.train_batch / data;
    int64_t micro = std::min(layout.micro_batch, rows);
    while (rows % micro != 0) --micro;
    if (choice.ranks != layout.ranks) choice.settings = settings_of(config, micro, rows / micro);
    result.choices.push_back(std::move(choice));
  }
  return result;
}

}  // namespace

const ElasticRanks::Choice* ElasticRanks::largest(int most) const {
  const auto above = std::find_if(choices.begin(), choices.end(), [&](const Choice& c) { return c.ranks > most; });
  return above == choices.begin() ? nullptr : &*std::prev(above);
}

ElasticRanks elastic_ranks(const RunConfig& config, int ranks) {
  std::vector<std::string> ignored;
  const DsConfig ds = read_ds_config(config.deepspeed, config.origins, ignored, config.on_gpu);
  return ds.elasticity.enabled.value ? by_section(config, ds.elasticity, ranks) : by_batch(config, ranks);
}

}  // namespace nought
