#include "nought/plan/predict.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>

#include "nought/base/host.h"
#include "nought/checkpoint/owned_pieces.h"
#include "nought/checkpoint/weight_hash.h"
#include "nought/comm/traffic_sums.h"
#include "nought/engine/engine.h"
#include "nought/infer/rollout.h"
#include "nought/models/flops.h"
#include "nought/plan/dry_run_rank.h"
#include "nought/plan/most_memory.h"
#include "nought/train/reward_model.h"
#include "nought/train/run_data.h"
#include "nought/train/teacher.h"
#include "nought/train/text_sample.h"
#include "nought/train/trainer.h"
#include "nought/train/value_model.h"
#include "nought/weights/model_source.h"

namespace nought {

namespace {

/// Updates of the run. A plan that counts epochs of unknown length has no bound.
int64_t updates_of(const RunPlan& plan) {
  return plan.max_steps > 0 ? plan.max_steps : std::numeric_limits<int64_t>::max();
}

}  // namespace

Layout layout_of(const RunPlan& plan) {
  Layout layout = plan.layout;
  layout.sharding = with_early_compression(layout.sharding, updates_of(plan));
  layout.ranks_per_host = launched_on_host().value_or(0);
  if (!plan.data.validates()) layout.evaluation_rows = 0;
  layout.hashes_weights = plan.receipt_every > 0;
  if (plan.alignment.of_rewards() && !plan.alignment.rewards.empty()) {
    layout.rollout_sequences = layout.train_batch() * plan.alignment.steps_of_answers(layout.accumulation) /
                               (layout.writes_answers_together() ? 1 : layout.data_ranks());
    const AlignmentPlan& alignment = plan.alignment;
    layout.has_written = alignment.learns_again(layout.accumulation) || alignment.ppo;
    if (alignment.ppo) layout.value_model = std::make_shared<const ModelConfig>(value_model_config(plan));
    layout.has_known = alignment.policy_loss.beta > 0;
    const bool without_adapter = alignment.keeps_reference() && plan.begins_without_adapter();
    layout.keeps_reference = alignment.keeps_reference() && !without_adapter;
    layout.asks_itself =
        layout.has_written || alignment.penalises_divergence() || without_adapter || alignment.top_entropy < 1;
    for (const RewardConfig& reward : alignment.rewards)
      if (reward.type == RewardType::reward_model)
        layout.judges.push_back(std::make_shared<const ModelConfig>(reward_model_config(plan, reward)));
    layout.rollout_generations = alignment.generations;
    layout.rollout_rewards = std::ssize(alignment.rewards);
    layout.rollout_new_tokens = plan.alignment.policy_loss.max_completion_length;
  }
  if (plan.alignment.distillation && !plan.alignment.teacher_model.empty()) {
    layout.teacher = std::make_shared<const ModelConfig>(teacher_config(plan));
    if (plan.alignment.writes_answers())
      layout.rollout_sequences = layout.train_batch() / (layout.writes_answers_together() ? 1 : layout.data_ranks());
    layout.rollout_new_tokens = plan.alignment.policy_loss.max_completion_length;
  }
  if (!plan.sample) return layout;
  layout.sample_prompt = prompt_tokens(*plan.sample, *tokenizer_of(with_model_folder(plan).data));
  layout.sample_new_tokens = plan.sample->max_new_tokens;
  return layout;
}

int64_t Prediction::steady_total() const { return std::accumulate(steady.begin(), steady.end(), int64_t{0}); }

namespace {

/// The batches of a step, as the sampler allocates them; their values are nobody's business here.
std::vector<Batch> make_batches(const Layout& layout, Memory& memory) {
  std::vector<Batch> batches;
  for (int64_t i = 0; i < layout.accumulation; ++i)
    batches.push_back(empty_batch_of(layout, layout.micro_batch, memory));
  return batches;
}

/// What has been sent and computed so far.
struct Counters {
  std::vector<Mesh::GroupTraffic> traffic = {};
  CountedWork work = {};
  StateTraffic moved = {}, by_update = {}, of_gradients = {}, of_inputs = {};
};

/// a + factor * (b - c), number by number; of the same mesh.
Counters extrapolate(const Counters& a, int64_t factor, const Counters& b, const Counters& c) {
  Counters result = a;
  for (const auto of :
       {&CountedWork::flops, &CountedWork::attention_flops, &CountedWork::product_bytes, &CountedWork::host_bytes,
        &CountedWork::bytes, &CountedWork::update_bytes, &CountedWork::operations})
    result.work.*of += static_cast<double>(factor) * (b.work.*of - c.work.*of);
  result.moved = result.moved + factor * (b.moved - c.moved);
  result.by_update = result.by_update + factor * (b.by_update - c.by_update);
  result.of_gradients = result.of_gradients + factor * (b.of_gradients - c.of_gradients);
  result.of_inputs = result.of_inputs + factor * (b.of_inputs - c.of_inputs);
  for (size_t i = 0; i < result.traffic.size(); ++i)
    add(result.traffic[i].traffic, b.traffic[i].traffic - c.traffic[i].traffic, factor);
  return result;
}

/// b - c.
Counters difference(const Counters& b, const Counters& c) {
  Counters none;
  for (const Mesh::GroupTraffic& group : b.traffic) none.traffic.push_back({group.axes, {}});
  return extrapolate(none, 1, b, c);
}

void note_memory(const Memory& memory, Prediction& prediction) {
  const MemoryLedger& ledger = memory.ledger();
  for (size_t c = 0; c < kNumCategories; ++c) {
    const auto category = static_cast<Category>(c);
    prediction.steady[c] = ledger.current(category);
    prediction.steady_host[c] = ledger.current(category, Pool::host);
    prediction.steady_file[c] = ledger.current(category, Pool::file);
  }
  prediction.memory = peaks_of(memory);
}

}  // namespace

StateTraffic moved_by(ShardedModel& model) {
  const MemoryLedger& ledger = model.context().memory->ledger();
  StateTraffic traffic = model.traffic();
  traffic.down = ledger.moved(Pool::device, Pool::host), traffic.up = ledger.moved(Pool::host, Pool::device);
  return traffic;
}

Prediction dry_run(const ModelConfig& config, const Layout& layout, const DryRunPlace& at) {
  DryRunRank rank(config, layout, at);
  const auto enter = [&](std::string_view part) {
    if (at.watch != nullptr) at.watch->enters(part, rank);
  };
  const Context& context = rank.context;
  const Mesh& mesh = rank.mesh;
  Decoder& decoder = rank.decoder;
  ShardedModel& model = rank.model;
  Engine engine(model);
  enter("load");
  if (at.watch != nullptr) {
    model.load(at.watch->states());
    context.memory->ledger().reset_peaks();  // as a run does
  }
  rank.begin();
  const SaveRoom copies = layout.async_save ? SaveRoom(model) : SaveRoom();
  std::vector<std::unique_ptr<DryRunReference>> beside;  // models that are only asked
  if (layout.keeps_reference)
    beside.push_back(std::make_unique<DryRunReference>(config, layout, layout.freezing, rank));
  for (const auto& judge : layout.judges)
    beside.push_back(std::make_unique<DryRunReference>(*judge, layout, Freezing(), rank));
  std::optional<DryRunReference> teacher;
  if (layout.teacher) {
    teacher.emplace(*layout.teacher, layout, Freezing(), rank);
    decoder.set_objective(teacher->objective());
  }
  const Schedules schedules = schedules_of(layout, mesh);
  engine.set_schedule(schedules);
  std::optional<DryRunValueModel> values;
  if (layout.value_model) values.emplace(*layout.value_model, layout, rank, schedules);

  Prediction prediction;
  prediction.layout = layout;
  prediction.parameters = decoder.parameter_count();
  prediction.frozen = decoder.frozen_count();
  if (prediction.frozen > 0) prediction.frozen_flops_per_token = frozen_flops_per_token(decoder, layout.seq_length);
  prediction.place = at.place;
  prediction.gathered_units = model.live_units().sizes();
  const StepSchedule schedule = schedules.step(layout.accumulation);
  for (int64_t chunk = 0; chunk < schedule.chunks(); ++chunk) prediction.in_flight.push_back(schedule.in_flight(chunk));
  const auto count = [&] {
    const StateTraffic of_gradients = model.optimizer().states().gradient_traffic();
    const SwapTraffic inputs = decoder.file_traffic();
    return Counters{rank.traffic_by_axes(), rank.work,
                    moved_by(model),        model.optimizer().traffic() - of_gradients,
                    of_gradients,           {.read = inputs.read, .written = inputs.written}};
  };
  const auto step = [&](int64_t micro_batches) {
    enter("step");
    const Counters before = count();
    std::vector<Batch> batches = make_batches(layout, *context.memory);
    if (teacher) teacher->teach(batches);
    rank.step(engine, std::span(batches).first(static_cast<size_t>(micro_batches)));
    if (values) values->step(micro_batches);
    return difference(count(), before);
  };
  // Asked before the first step, they keep tables for the positions of tokens from then on.
  for (const auto& model : beside) model->pass(schedules);
  if (values) values->ask();
  const int64_t beyond = layout.accumulation - dry_run_micro_batches(layout);
  for (int64_t i = updates_before_compression(model.options()); i > 0; --i) {
    const Counters before = step(layout.accumulation - beyond);
    if (!prediction.traffic_before) {
      prediction.traffic_before.emplace();
      for (const Mesh::GroupTraffic& group : before.traffic) add(*prediction.traffic_before, group.traffic);
    }
  }
  const Counters shorter = step(layout.accumulation - beyond - (beyond > 0 ? 1 : 0));
  const Counters longer = step(layout.accumulation - beyond);
  const Counters whole = extrapolate(longer, beyond, longer, shorter);
  prediction.traffic_by_axes = whole.traffic;
  for (const Mesh::GroupTraffic& group : whole.traffic) add(prediction.traffic, group.traffic);
  prediction.states = whole.moved, prediction.by_update = whole.by_update;
  prediction.of_gradients = whole.of_gradients, prediction.of_inputs = whole.of_inputs;
  prediction.executed_flops = whole.work.flops, prediction.attention_flops = whole.work.attention_flops;
  prediction.product_bytes = whole.work.product_bytes, prediction.host_bytes = whole.work.host_bytes;
  prediction.other_bytes = whole.work.bytes, prediction.update_bytes = whole.work.update_bytes;
  prediction.operations = whole.work.operations;
  prediction.at_synchronizations = rank.synchronize([&] { step(layout.accumulation - beyond); });
  if (layout.evaluation_rows > 0) {
    enter("validation");
    Batch batch = empty_batch_of(layout, layout.evaluation_rows, *context.memory);
    batch.row_keys.clear();
    if (teacher) teacher->teach(std::span(&batch, 1));
    engine.evaluate(std::span(&batch, 1), 1);
    if (values) values->evaluate();
  }
  enter("saving");
  // A checkpoint or an export puts the parts of a Unit's parameters together.
  for (size_t unit = 0; layout.cuts_parameters() && unit < decoder.units().size(); ++unit)
    model.with_parameters(unit, [](const Parameter&, const Tensor&) {});
  if (values && layout.cuts_parameters()) values->gather();
  if (layout.hashes_weights) HashRoom(context, rank.ranks->size());
  if (layout.rollout_sequences > 0) {
    enter("answers");
    const int64_t longest = layout.row_tokens > 0 ? layout.row_tokens / layout.micro_batch : layout.seq_length;
    model.expect(decoder.passes(/*backward=*/false));
    dry_run_answers(decoder, model.context(), model.options().dtype, longest - layout.rollout_new_tokens,
                    layout.rollout_sequences, layout.rollout_generations,
                    {.max_completion_length = layout.rollout_new_tokens});
    model.expect({});
    exchange_answers(model, layout);
  }
  for (const auto& model : beside) model->pass(schedules);
  if (values) values->ask();
  if (layout.asks_itself) ask_of_answers(engine, model, decoder, layout);
  if (layout.sample_prompt > 0) enter("sample");
  if (layout.sample_prompt > 0) dry_run_sample(model, decoder, layout.sample_prompt, layout.sample_new_tokens);
  model.settle();
  note_memory(*context.memory, prediction);
  if (at.watch != nullptr) {
    step(layout.accumulation - beyond);
    model.settle();
    enter("end");
  }
  return prediction;
}

bool they_differ(const Layout& layout) {
  return layout.zero_stage > 0 && layout.shard_ranks() * layout.context_ranks > 1 &&
         layout.sharding.offload_optimizer.tier.pool != Pool::device &&
         std::holds_alternative<LambOptions>(layout.sharding.optimizer.method);
}

namespace {

constexpr int kMostSharers = 16;  // further ones differ no more

/// The peaks of the ranks of a pipeline stage that share out states.
std::vector<RankMemory> memory_of_sharers(const ModelConfig& config, const Layout& layout, int place) {
  std::vector<RankMemory> all;
  const int sharers = std::min(layout.shard_ranks() * layout.context_ranks, kMostSharers);
  for (int sharer = 0; sharer < sharers; ++sharer)
    all.push_back(dry_run(config, layout, {.place = place, .sharer = sharer}).memory);
  return all;
}

}  // namespace

Prediction predict_at(const ModelConfig& config, const Layout& layout, int place) {
  Prediction prediction = dry_run(config, layout, {.place = place});
  if (they_differ(layout)) prediction.memory = most_of(memory_of_sharers(config, layout, place));
  if (layout.expert_ranks > 1 && config.experts)
    prediction.at_most = dry_run(config, layout, {.place = place, .gets_all_experts_rows = true}).memory;
  return prediction;
}

std::vector<Prediction> predict_places(const ModelConfig& config, const Layout& layout) {
  std::vector<Prediction> all;
  for (int place = 0; place < layout.stages(); ++place) all.push_back(predict_at(config, layout, place));
  return all;
}

std::vector<RankMemory> memory_of_ranks(const ModelConfig& config, const std::vector<Prediction>& places) {
  const Layout& layout = places.front().layout;
  const bool differ = they_differ(layout) && layout.shard_ranks() * layout.context_ranks <= kMostSharers;
  std::vector<RankMemory> all;
  for (const Prediction& place : places) {
    if (!differ) {
      all.push_back(place.memory);
      continue;
    }
    const std::vector<RankMemory> sharers = memory_of_sharers(config, layout, place.place);
    for (int replica = 0; replica < layout.replicas; ++replica)
      for (const RankMemory& each : sharers) all.insert(all.end(), static_cast<size_t>(layout.tensor_ranks), each);
  }
  return all;
}

const Prediction& most_demanding(const std::vector<Prediction>& places) {
  return *std::max_element(places.begin(), places.end(), [](const Prediction& a, const Prediction& b) {
    return a.most().peak_total < b.most().peak_total;
  });
}

Prediction predict(const ModelConfig& config, const Layout& layout) {
  return most_demanding(predict_places(config, layout));
}

std::vector<Prediction> predict_recompute(const ModelConfig& config, const Layout& layout) {
  std::vector<Prediction> predictions;
  for (const Recompute mode : {Recompute::none, Recompute::selective, Recompute::full}) {
    Layout each = layout;
    each.recompute.mode = mode;
    predictions.push_back(predict(config, each));
  }
  return predictions;
}

}  // namespace nought
