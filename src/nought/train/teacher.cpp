#include "nought/train/teacher.h"

#include "nought/engine/pipeline_cut.h"
#include "nought/train/model_beside.h"
#include "nought/train/reference_model.h"
#include "nought/weights/model_source.h"

namespace nought {

namespace {

template <class Check>
void naming_teacher(const RunPlan& plan, Check&& check) {
  naming_model("alignment.teacher_model", plan.alignment.teacher_model, check);
}

}  // namespace

ModelConfig teacher_config(const RunPlan& plan) {
  ModelConfig config;
  naming_teacher(plan, [&] {
    const std::string& folder = plan.alignment.teacher_model;
    config = ModelConfig::from_folder(folder);
    config.require_language_model(folder);
    config.require_loadable(folder);
    require_shareable(plan, config);
  });
  return config;
}

void check_teacher(const RunPlan& plan, int64_t vocab_size) {
  const ModelConfig config = teacher_config(plan);
  naming_teacher(plan, [&] {
    require<ConfigError>(config.vocab_size == vocab_size,
                         "the teacher has {} tokens, and the model that is trained {}: they must read the same tokens",
                         config.vocab_size, vocab_size);
    Decoder(config).require_temperature(plan.alignment.policy_loss.temperature);
  });
}

void check_teacher_reads(const RunPlan& plan, const Tokenizer& tokenizer) {
  const std::string& folder = plan.alignment.teacher_model;
  naming_teacher(plan, [&] { require_reads(plan, teacher_config(plan), folder, tokenizer); });
}

void ask_teacher(ShardedModel& model, Decoder& decoder, std::span<Batch> batches, double temperature) {
  model.expect(decoder.passes(/*backward=*/false));
  for (Batch& batch : batches) batch.teacher = decoder.head_inputs(model.context(), batch, temperature);
  model.expect({});
  model.settle();
}

Teacher::Teacher(const RunPlan& plan, const Mesh& mesh, const Context& context)
    : decoder_(teacher_config(plan), {}, {},
               ModelRanks(mesh, plan.layout.sequence_parallel, pipeline_cut_of(plan, teacher_config(plan)),
                          plan.layout.context_method)),
      model_(context, mesh, decoder_, reference_sharding(plan.layout)),
      temperature_(plan.alignment.policy_loss.temperature) {
  model_.load(ModelSource(FoundModel{plan.alignment.teacher_model}).weights());
}

std::shared_ptr<const Objective> distil_objective(Decoder& decoder, double beta, double temperature) {
  return std::make_shared<DistilObjective>(
      beta, temperature, [&decoder](const Context& context, const std::function<void(const LogitsOfRows&)>& body) {
        decoder.with_head(context, body);
      });
}

}  // namespace nought
