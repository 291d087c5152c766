#include "nought/measure/stage_seconds.h"

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <tuple>
#include <utility>

#include "nought/comm/flight_recorder.h"
#include "nought/comm/mesh.h"
#include "nought/data/sampler.h"
#include "nought/models/decoder.h"
#include "nought/tensor/random.h"
#include "nought/zero/micro_batch.h"
#include "nought/zero/state.h"

namespace nought {

namespace {

constexpr int kUnmeasured = 2, kMeasured = 3;  // passes; what they take is allocated in the first ones

/// A model with one layer of each kind.
struct KindsOfLayers {
  ModelConfig config;
  std::vector<size_t> kinds;  // of each layer of the whole model
};

KindsOfLayers kinds_of(const ModelConfig& whole) {
  KindsOfLayers result{.config = whole, .kinds = {}};
  std::map<std::tuple<bool, int64_t, LayerKind>, size_t> known;  // whether it has experts, its window and its kind
  ModelConfig& config = result.config;
  config.sliding_windows.clear();
  config.layer_kinds.clear();
  if (config.experts) config.experts->layers.clear();
  for (int64_t layer = 0; layer < whole.num_layers; ++layer) {
    const int64_t window = whole.sliding_windows[static_cast<size_t>(layer)];
    const auto [found, is_new] =
        known.try_emplace({whole.has_experts(layer), window, whole.kind_of(layer)}, known.size());
    result.kinds.push_back(found->second);
    if (!is_new) continue;
    config.sliding_windows.push_back(window);
    config.layer_kinds.push_back(whole.kind_of(layer));
    if (config.experts) config.experts->layers.push_back(whole.has_experts(layer));
  }
  config.num_layers = std::ssize(config.sliding_windows);
  return result;
}

/// Tokens and targets that no two places share by more than chance, so that routers choose evenly.
Batch random_rows(const RunPlan& plan, int64_t vocabulary, Memory& memory) {
  Batch batch = empty_batch(plan.layout.micro_batch, plan.layout.seq_length, memory);
  uint64_t index = 0;
  for (const Tensor& tensor : {batch.input_ids, batch.targets})
    for (int32_t& token : tensor.span<int32_t>())
      token = static_cast<int32_t>(philox(plan.seed, index++)[0] % static_cast<uint64_t>(vocabulary));
  return batch;
}

/// The least seconds of each Unit of the model in several passes of this rank. Collective over the ranks of the mesh,
/// which share its matrices.
std::vector<double> measure(const ModelConfig& config, const RunPlan& plan, const Mesh& mesh, const Context& context,
                            Timeline& timeline) {
  RecomputeOptions recompute = plan.layout.recompute;
  recompute.unit_tiles = 1;                                                   // seconds are those of whole Units
  if (recompute.tier.pool == Pool::file) recompute.tier.pool = Pool::device;  // and drives have no part in them
  Decoder decoder(config, recompute, plan.layout.fp8, ModelRanks(mesh, plan.layout.sequence_parallel));
  apply(plan.layout.freezing, decoder);
  ShardedModel::Options options = plan.layout.sharding_options();
  options.policy = Policy::stage(0);
  options.offload_param = {};                    // it takes stage 3
  options.optimizer = {.method = SgdOptions{}};  // without states: nothing is updated
  ShardedModel model(context, mesh, decoder, options);
  model.load(InitialState(plan.seed));
  const Batch batch = random_rows(plan, config.vocab_size, *context.memory);
  std::vector<double> least(decoder.units().size(), std::numeric_limits<double>::infinity());
  for (int pass = 0; pass < kUnmeasured + kMeasured; ++pass) {
    timeline.take();
    MicroBatch micro_batch(model, batch, {});
    micro_batch.forward();
    micro_batch.backward();
    model.settle();
    model.discard_gradients();
    if (pass < kUnmeasured) continue;
    std::map<std::string, double, std::less<>> seconds;
    for (const TraceEvent& event : timeline.take())  // "block.3, forward"
      if (event.kind == TraceEventKind::unit) seconds[event.name.substr(0, event.name.find(','))] += event.seconds();
    for (size_t i = 0; i < least.size(); ++i) least[i] = std::min(least[i], seconds[decoder.units()[i]->name()]);
  }
  return least;
}

}  // namespace

RunPlan with_stage_seconds(RunPlan plan, const ModelConfig& whole, Communicator& world, const Context& context) {
  StagePartition& partition = plan.layout.pipeline.partition;
  if (plan.layout.pipeline.ranks == 1 || !partition.balances_costs() || !partition.costs.empty()) return plan;
  note_phase(world, "measuring");
  const auto [config, kinds] = kinds_of(whole);
  const int tensor = plan.layout.tensor_ranks;
  const std::unique_ptr<Communicator> sharers =
      tensor == 1 ? make_self_communicator() : world.split(world.rank() / tensor, world.rank() % tensor);
  const auto timeline = std::make_shared<Timeline>();
  timeline->follow(context.stream);
  sharers->record(timeline);
  timeline->start();
  Context own = context;
  own.memory = Memory::create();  // it is no part of the run: neither of its budget nor of its peaks
  world.barrier().wait();
  const std::vector<double> of_kinds =
      measure(config, plan, Mesh(*sharers, GridSizes{.tensor = tensor, .expert_tensor = tensor}), own, *timeline);
  partition.costs = {of_kinds.front()};
  for (const size_t kind : kinds) partition.costs.push_back(of_kinds[1 + kind]);
  partition.costs.push_back(of_kinds.back());
  all_reduce_values(world, own, partition.costs);
  for (double& seconds : partition.costs) seconds /= world.size();
  partition.measured = true;
  return plan;
}

}  // namespace nought
