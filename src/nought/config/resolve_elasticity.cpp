// DeepSpeed's section "elasticity": the batch of a run whose number of ranks may change.
#include "nought/config/elasticity.h"
#include "nought/config/resolve_steps.h"

namespace nought {

namespace {

/// The keys that say the batch otherwise. They are refused, or have no effect where the section says so.
void judge_other_batches(Resolver& r, const std::string& place) {
  std::string given;
  const auto look = [&](const std::string& path, bool is_given) {
    if (is_given) given += (given.empty() ? "" : ", ") + r.origins.place(path);
  };
  const TrainingConfig& t = r.config.training;
  look("deepspeed.train_batch_size", r.ds.train_batch_size.given());
  look("deepspeed.train_micro_batch_size_per_gpu", r.ds.train_micro_batch_size_per_gpu.given());
  look("deepspeed.gradient_accumulation_steps", r.ds.gradient_accumulation_steps.given());
  look("training.per_device_train_batch_size", t.per_device_train_batch_size.given);
  look("training.gradient_accumulation_steps", t.gradient_accumulation_steps.given);
  if (given.empty()) return;
  require<ConfigError>(r.ds.elasticity.ignore_non_elastic_batch_info.value,
                       "{} and {} both give the batch: leave one out, or set elasticity.ignore_non_elastic_batch_info",
                       place, given);
  r.warn(fmt::format("{} has no effect: {} gives the batch", given, place));
}

}  // namespace

std::optional<ElasticBatch> resolve_elasticity(Resolver& r) {
  const DsElasticity& section = r.ds.elasticity;
  if (!section.enabled.value) return {};
  const std::string place = r.origins.place("deepspeed.elasticity");
  judge_other_batches(r, place);
  const int64_t data = r.plan.layout.data_ranks(), sharing = r.plan.layout.ranks / data;
  require<ConfigError>(section.version.value != 0.2 || section.model_parallel_size.value == sharing,
                       "{}.model_parallel_size = {}, but {} ranks share a model (tp_size x pp_size x cp_size): make "
                       "them equal",
                       place, section.model_parallel_size.value, sharing);
  const ElasticBatch usual = elastic_batch(section, place);
  ElasticBatch batch = elastic_batch_of(section, place, data);
  if (!usual.allows(data))
    r.warn(fmt::format("{}: {} {} do not make the batch of {}, which {} would; this run's batch is {}", place, data,
                       r.data_name("ranks"), usual.train_batch, usual.nearest(data), batch.train_batch));
  return batch;
}

}  // namespace nought
