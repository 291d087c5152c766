#include "nought/plan/pass_times.h"

#include <utility>

#include "nought/base/error.h"
#include "nought/measure/operation_times.h"
#include "nought/plan/dry_run_rank.h"
#include "nought/zero/micro_batch.h"

namespace nought {

namespace {

PipelineRanks ranks_of(const Pipeline& pipeline) {
  PipelineRanks ranks;
  ranks.ranks = static_cast<int>(pipeline.ranks);
  ranks.cut = cut_of(pipeline);
  return ranks;
}

/// What the work of each chunk of a rank costs.
template <class Cost>
std::vector<PassTimes> costs_of_chunks(DryRunRank& rank, const Layout& layout, const Cost& cost) {
  double before = 0;
  const auto counted = [&] {
    const double now = cost(rank.work);
    return now - std::exchange(before, now);
  };
  const std::vector<Chunk> chunks = rank.decoder.chunks();
  const Batch batch = empty_batch_of(layout, layout.micro_batch, *rank.context.memory);
  MicroBatch micro_batch(rank.model, batch, {.deferred = true});
  std::vector<PassTimes> costs(chunks.size());
  counted();
  for (size_t i = 0; i < chunks.size(); ++i) {
    micro_batch.forward(i, chunks[i], chunks[i].first() ? Tensor() : micro_batch.make_hidden());
    costs[i].forward = counted();
  }
  for (size_t i = chunks.size(); i-- > 0;) {
    const bool told = !chunks[i].last() && chunks[i].trained;  // the stage behind sends a gradient
    micro_batch.backward(i, told ? micro_batch.make_hidden() : Tensor());
    costs[i].backward = counted();
    micro_batch.form_weight_gradients(i);
    costs[i].weight_gradients = counted();
  }
  return costs;
}

template <class Cost>
std::vector<PassTimes> times_of_stages(const ModelConfig& config, const Layout& layout, OperationTimes* times,
                                       const Cost& cost) {
  const PipelineRanks ranks = ranks_of(layout.pipeline);
  std::vector<PassTimes> stages(static_cast<size_t>(ranks.stages()));
  for (int place = 0; place < ranks.ranks; ++place) {
    DryRunRank rank(config, layout.at_zero_stage(0), DryRunPlace{.place = place, .times = times});
    const std::vector<PassTimes> chunks = costs_of_chunks(rank, layout, cost);
    for (int chunk = 0; chunk < ranks.chunks(); ++chunk)
      stages[static_cast<size_t>(ranks.stage_of(chunk, place))] = chunks[static_cast<size_t>(chunk)];
  }
  return stages;
}

}  // namespace

std::vector<PassTimes> modelled_times(const ModelConfig& config, const Layout& layout,
                                      const std::function<double(const CountedWork&)>& cost) {
  return times_of_stages(config, layout, nullptr, cost);
}

std::vector<PassTimes> modelled_times(const ModelConfig& config, const Layout& layout, double rate) {
  return times_of_stages(config, layout, nullptr, [rate](const CountedWork& work) { return work.flops / rate; });
}

std::vector<PassTimes> modelled_times(const ModelConfig& config, const Layout& layout, OperationTimes& times) {
  return times_of_stages(config, layout, &times, [&](const CountedWork& work) {
    return work.product_seconds + work.other_seconds + times.rates().operation * work.operations;
  });
}

std::vector<PassTimes> mean_times(const PipelineTimeline& timeline, const Pipeline& pipeline) {
  const PipelineRanks ranks = ranks_of(pipeline);
  std::vector<PassTimes> sums(static_cast<size_t>(ranks.stages()), PassTimes{0, 0, 0});
  std::vector<int64_t> micro_batches(sums.size());
  for (int rank = 0; rank < ranks.ranks; ++rank)
    for (const TimedInstruction& each : timeline.ranks.at(static_cast<size_t>(rank))) {
      const Action action = each.instruction.action;
      if (!is_pass(action)) continue;
      const auto stage = static_cast<size_t>(ranks.stage_of(static_cast<int>(each.instruction.chunk), rank));
      PassTimes& sum = sums[stage];
      (action == Action::forward    ? sum.forward
       : action == Action::backward ? sum.backward
                                    : sum.weight_gradients) += each.end - each.begin;
      if (action == Action::forward) ++micro_batches[stage];
    }
  for (size_t stage = 0; stage < sums.size(); ++stage) {
    const auto count = static_cast<double>(micro_batches[stage]);
    require(count > 0, "a timeline without passes through stage {} of {}", stage, sums.size());
    sums[stage].forward /= count, sums[stage].backward /= count, sums[stage].weight_gradients /= count;
  }
  return sums;
}

}  // namespace nought
