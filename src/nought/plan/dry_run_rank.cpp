#include "nought/plan/dry_run_rank.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>

#include "nought/comm/traffic_sums.h"
#include "nought/data/answer_batch.h"
#include "nought/engine/pipeline_cut.h"
#include "nought/engine/sequence_pass.h"
#include "nought/infer/rollout.h"
#include "nought/nn/policy_objective.h"
#include "nought/nn/ppo_objective.h"
#include "nought/nn/sequence_objective.h"
#include "nought/parallel/context_ranks.h"
#include "nought/train/reference_model.h"
#include "nought/train/teacher.h"
#include "nought/train/value_model.h"

namespace nought {

namespace {

ChosenExperts chosen_experts(const Layout& layout, const DryRunPlace& at) {
  if (!at.gets_all_experts_rows) return {};
  return {Grid(layout.grid()).coordinate(at.rank(layout), Axis::expert), layout.expert_ranks};
}

Context context_of(const Layout& layout, const DryRunPlace& at, CountedWork& work) {
  if (layout.gpu) return dry_run_gpu(*layout.gpu, work, chosen_experts(layout, at));
  return {Memory::create_virtual(), make_counting_kernels(work, chosen_experts(layout, at), nullptr, at.times)};
}

/// How many of these ranks lie on the host of the one in the dry run, and on any.
RanksOnHosts on_hosts(const Layout& layout, const std::vector<int>& group, int rank) {
  const int on_each = layout.ranks_per_host > 0 ? layout.ranks_per_host : layout.ranks;
  std::map<int, int> counts;
  for (const int each : group) ++counts[each / on_each];
  RanksOnHosts hosts{.here = counts[rank / on_each]};
  for (const auto& [host, count] : counts) hosts.most = std::max(hosts.most, count);
  return hosts;
}

std::unique_ptr<Communicator> seen_by(DryRunWatch* watch, std::unique_ptr<Communicator> group,
                                      const std::vector<int>& ranks) {
  return watch == nullptr ? std::move(group) : watch->watched(std::move(group), ranks);
}

std::vector<int> all_ranks(const Layout& layout) {
  std::vector<int> all(static_cast<size_t>(layout.ranks));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

std::unique_ptr<Communicator> silent_world(const Context& context, const Layout& layout, const DryRunPlace& at) {
  const std::vector<int> all = all_ranks(layout);
  const int rank = at.rank(layout);
  return seen_by(at.watch,
                 make_silent_communicator(context, rank, layout.ranks, layout.wire, on_hosts(layout, all, rank)), all);
}

Mesh::MakeGroup silent_groups(Communicator& ranks, const Context& context, const Layout& layout, DryRunWatch* watch) {
  return [&ranks, context, layout, watch](const std::vector<int>& group) {
    const auto here = std::find(group.begin(), group.end(), ranks.rank()) - group.begin();
    return seen_by(watch,
                   make_silent_communicator(context, static_cast<int>(here), static_cast<int>(group.size()),
                                            layout.wire, on_hosts(layout, group, ranks.rank())),
                   group);
  };
}

/// Stage 1 alone has servers; the other columns of a plan are of synchronous training.
bool servers_at(const Layout& layout) { return layout.staleness && layout.zero_stage == 1; }

ShardedModel::Options options_of(const Layout& layout) {
  ShardedModel::Options options = layout.sharding_options();
  // What is put off after some steps takes most from the first step after them on.
  if (options.offload_optimizer.delay_after) options.offload_optimizer.delay_after = 0;
  options.local_gradients = servers_at(layout);
  return options;
}

/// Without a pipeline.
Schedules schedule_of_one(const Layout& layout) { return layout.schedule ? Schedules(layout.schedule) : Schedules(); }

}  // namespace

Schedules schedules_of(const Layout& layout, const Mesh& mesh) {
  return layout.stages() > 1 ? schedule_at(mesh, layout.pipeline) : schedule_of_one(layout);
}

int with_most_tokens(const Layout& layout) {
  ContextTokens tokens{.rows = 1, .length = layout.seq_length};
  tokens.ranks.ranks = layout.context_ranks;
  int most = 0;
  for (int rank = 1; rank < layout.context_ranks; ++rank)
    if (tokens.row_tokens(rank) > tokens.row_tokens(most)) most = rank;
  return most;
}

Batch empty_batch_of(const Layout& layout, int64_t rows, Memory& memory) {
  if (layout.row_tokens == 0) return empty_batch(rows, layout.seq_length, memory);
  // A row of answers has as many tokens for each pair as the micro-batches of steps have.
  const int64_t tokens = layout.row_tokens * rows / layout.micro_batch;
  const std::vector<int32_t> ids(static_cast<size_t>(tokens / (2 * rows)));
  const std::vector<float> numbers(ids.size());
  constexpr double kAdvantage = 0;
  JudgedAnswer answer{.ids = ids};
  if (layout.rollout_sequences > 0) answer.wanted = std::span(&kAdvantage, 1);
  if (layout.has_written) answer.written = numbers;
  if (layout.has_known) answer.known = numbers;
  const std::vector<JudgedAnswer> answers(static_cast<size_t>(2 * rows), answer);
  return batch_of_answers(memory, answers, {.length = tokens, .most_positions = layout.seq_length});
}

int64_t rollout_answers(const Layout& layout) {
  return layout.rollout_sequences * (layout.writes_answers_together() ? 1 : layout.data_ranks());
}

void exchange_answers(ShardedModel& model, const Layout& layout) {
  const Context& context = model.context();
  const auto buffer = [&](int64_t bytes) { return context.empty({bytes}, DType::u8, Category::communication); };
  constexpr int64_t kLength = sizeof(int64_t);
  const int64_t ranks = layout.data_ranks();
  if (ranks > 1 && !layout.writes_answers_together()) {
    const int64_t bytes = bytes_of_answers(layout.rollout_sequences, layout.rollout_new_tokens);
    const std::array<Tensor, 4> all{buffer(kLength), buffer(ranks * kLength), buffer(bytes), buffer(ranks * bytes)};
  }
  if (layout.ranks == 1 || layout.rollout_rewards == 0) return;
  const int64_t scores = rollout_answers(layout) * layout.rollout_rewards;
  { const std::array<Tensor, 2> all{buffer(kLength), buffer(scores * static_cast<int64_t>(sizeof(double)))}; }
  constexpr int64_t kOfSteps = 6, kOfAnswers = 3;  // PolicyNumbers
  SequenceSums numbers = layout.value_model
                             ? PpoNumbers().list()
                             : SequenceSums(static_cast<size_t>(kOfSteps + kOfAnswers * layout.train_batch()));
  sum_over_ranks(model, numbers);
}

void ask_of_answers(Engine& engine, ShardedModel& model, Decoder& decoder, Layout layout) {
  decoder.set_objective(std::make_shared<SequenceObjective>(SequenceObjective::LossOf(), 2));
  layout.has_written = !decoder.config().classifier, layout.has_known = false;  // the places of tokens
  const int64_t tokens = decoder.config().classifier ? 1 : layout.row_tokens / layout.micro_batch;
  const Batch batch =
      empty_batch_of(layout, std::max(layout.micro_batch, layout.evaluation_rows), *model.context().memory);
  engine.evaluate(std::span(&batch, 1), 1);
  SequenceSums sums(static_cast<size_t>(rollout_answers(layout) * tokens));
  sum_over_ranks(model, sums);
}

int64_t dry_run_micro_batches(const Layout& layout) {
  if (layout.stages() > 1) return layout.accumulation;
  const int64_t first = layout.sharding.virtual_ranks > 0 ? 3 : 2;  // a tree ends with one that another waits for
  return std::min(layout.accumulation, schedule_of_one(layout).step(layout.accumulation).in_flight(0) + first);
}

int DryRunPlace::rank(const Layout& layout) const {
  if (number) return *number;
  return place * (layout.ranks / layout.stages()) + layout.tensor_ranks * sharer.value_or(with_most_tokens(layout));
}

DryRunRank::DryRunRank(const ModelConfig& config, const Layout& layout, const DryRunPlace& at)
    : context(context_of(layout, at, work)),
      ranks(silent_world(context, layout, at)),
      workers(layout.local_steps
                  ? std::make_unique<Workers>(*ranks, layout.grid(), silent_groups(*ranks, context, layout, at.watch))
                  : nullptr),
      mesh(workers ? workers->mesh() : Mesh(*ranks, layout.grid(), silent_groups(*ranks, context, layout, at.watch))),
      decoder(config, layout.recompute, layout.fp8,
              ModelRanks(mesh, layout.sequence_parallel, pipeline_cut_of(layout.pipeline, config, layout.seq_length),
                         layout.context_method)),
      model(context, mesh, apply(layout.freezing, decoder), options_of(layout)),
      layout_(layout) {
  if (layout.rollout_sequences > 0)
    decoder.set_objective(std::make_shared<PolicyObjective>(PolicyLossOptions(), std::make_shared<PolicyNumbers>()));
  else if (layout.row_tokens > 0 || config.classifier)
    decoder.set_objective(std::make_shared<SequenceObjective>(loss_of_pairs({}), 2));
  if (workers) local.emplace(model, *workers, *layout.local_steps);
  if (!servers_at(layout)) return;
  const auto all = [&] {
    return seen_by(at.watch, make_silent_communicator(context, ranks->rank(), ranks->size(), layout.wire),
                   all_ranks(layout));
  };
  servers = std::make_unique<RotatingServers>(model, all(), all(), *layout.staleness);
}

DryRunReference::DryRunReference(const ModelConfig& config, const Layout& layout, const Freezing& freezing,
                                 DryRunRank& rank)
    : layout_(layout),
      context_(rank.context),
      decoder_(config, {}, {},
               ModelRanks(rank.mesh, layout.sequence_parallel,
                          pipeline_cut_of(layout.pipeline, config, layout.seq_length), layout.context_method)),
      model_(context_, rank.mesh, apply(freezing, decoder_), reference_sharding(layout)) {}

void DryRunReference::pass(const Schedules& schedules) {
  Engine engine(model_);
  engine.set_schedule(schedules);
  ask_of_answers(engine, model_, decoder_, layout_);
}

void DryRunReference::teach(std::span<Batch> batches) { ask_teacher(model_, decoder_, batches, /*temperature=*/1); }

std::shared_ptr<const Objective> DryRunReference::objective() { return distil_objective(decoder_, 0.5, 1); }

DryRunValueModel::DryRunValueModel(const ModelConfig& config, const Layout& layout, DryRunRank& rank,
                                   const Schedules& schedules)
    : layout_(layout),
      context_(rank.context),
      decoder_(config, layout.recompute, {},
               ModelRanks(rank.mesh, layout.sequence_parallel,
                          pipeline_cut_of(layout.pipeline, config, layout.seq_length), layout.context_method)),
      model_(context_, rank.mesh, decoder_, layout.sharding_options()),
      engine_(model_) {
  engine_.set_schedule(schedules);
}

Batch DryRunValueModel::batch(int64_t rows) const {
  const int64_t tokens = layout_.row_tokens / layout_.micro_batch;
  const std::vector<int32_t> ids(static_cast<size_t>(tokens));
  const std::vector<ValuedAnswer> answers(static_cast<size_t>(rows),
                                          {.ids = ids, .places = {tokens - layout_.rollout_new_tokens, tokens}});
  return batch_of_places(*context_.memory, answers, {.length = tokens * rows, .most_positions = layout_.seq_length});
}

void DryRunValueModel::ask() {
  const Batch batch = this->batch(std::max(layout_.micro_batch, layout_.evaluation_rows));
  decoder_.set_objective(std::make_shared<SequenceObjective>(SequenceObjective::LossOf(), 2));
  engine_.evaluate(std::span(&batch, 1), 1);
  SequenceSums sums(static_cast<size_t>(rollout_answers(layout_) * layout_.rollout_new_tokens));
  sum_over_ranks(model_, sums);
}

void DryRunValueModel::step(int64_t micro_batches) {
  std::vector<Batch> batches;
  for (int64_t i = 0; i < layout_.accumulation; ++i) batches.push_back(batch(layout_.micro_batch));
  decoder_.set_objective(std::make_shared<SequenceObjective>(
      [](std::span<const BatchSequence> sequences, std::span<const double>) {
        return SequenceObjective::Loss{0, std::vector<double>(sequences.size())};
      },
      1));
  engine_.step(std::span(batches).first(static_cast<size_t>(micro_batches)), 1, /*lr=*/0,
               /*max_norm=*/layout_.sharding.offload_optimizer.early ? 0 : 1);
}

void DryRunValueModel::evaluate() {
  const Batch batch = this->batch(layout_.evaluation_rows);
  engine_.evaluate(std::span(&batch, 1), 1);
}

void DryRunValueModel::gather() {
  for (size_t unit = 0; unit < decoder_.units().size(); ++unit)
    model_.with_parameters(unit, [](const Parameter&, const Tensor&) {});
}

void DryRunRank::begin() {
  if (local) local->begin();
  if (servers) servers->begin(0);
}

void DryRunRank::step(Engine& engine, std::span<const Batch> batches) {
  const double targets = static_cast<double>(layout_.tokens_per_step());
  if (servers) {
    engine.pass(batches, targets);
    servers->push({.loss_sum = 0, .total_weight = targets, .lr = 0, .max_norm = 1});
    servers->pull();
    return;
  }
  engine.step(batches, targets, /*lr=*/0, /*max_norm=*/layout_.sharding.offload_optimizer.early ? 0 : 1);
  std::array<double, 6> told{};  // how the step went
  if (workers) all_reduce_values(workers->numbers(), context, told);
}

Traffic DryRunRank::synchronize(const std::function<void()>& step_between) {
  Traffic sent;
  if (!local) return sent;
  const auto synchronize_after = [&](int64_t steps) {
    const Traffic before = workers->traffic();
    local->after_step(steps);
    add(sent, workers->traffic() - before);
  };
  const LocalStepsOptions& options = local->options();
  for (int64_t i = 1; i <= options.fragments; ++i) {
    synchronize_after(i * options.interval());
    if (options.delay == 0) continue;
    step_between();
    synchronize_after(i * options.interval() + options.delay);
  }
  return sent;
}

std::vector<Mesh::GroupTraffic> DryRunRank::traffic_by_axes() const {
  std::vector<Mesh::GroupTraffic> all = mesh.traffic_by_axes();
  if (workers) all.push_back({"replicate, between workers", workers->numbers().traffic()});
  if (servers) all.push_back({"shard, servers", servers->traffic()});
  return all;
}

}  // namespace nought
