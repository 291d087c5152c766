// Short runs of workers that make local steps, on thread ranks: what each has at the end, and what was sent.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "support/mesh_runs.h"

#include "nought/zero/local_steps.h"

namespace nought::test {

struct LocalRun {
  GridSizes sizes = {.replicate = 2};
  int stage = 0;
  LocalStepsOptions options = {};
  ShardedModel::Options sharding = {.optimizer = {.method = AdamOptions{.eps = 1e-4}, .weight_decay = 0.1}};
  double max_norm = 0, lr = 2e-3;
  int64_t meets_until = 1000;  // after later steps nobody meets
  bool finishes = false;
  std::string resumed = "", saved = "";  // folders of checkpoints; "" for none
};

/// What a worker's ranks have in common, by worker.
struct LocalCourse {
  std::vector<double> losses;                         // of this worker
  std::map<std::string, std::vector<float>> weights;  // at the end, whole
  std::vector<int64_t> sent;                          // by the worker's first rank to its peers, elements by step
};

/// Rows of which all targets count, so that every worker has equally many.
inline Batch local_rows(Memory& memory, const ModelConfig& config, int64_t step, int rank, int ranks) {
  const Batch batch = mesh_rows(memory, config, step, 0, rank, ranks);
  for (int64_t i = 0; i < batch.targets.numel(); ++i) {
    int32_t& target = batch.targets.data<int32_t>()[i];
    if (target == kIgnoredTarget) target = static_cast<int32_t>((7 * step + i) % config.vocab_size);
  }
  return batch;
}

/// Steps [steps.begin, steps.end), of one micro-batch each.
inline std::vector<LocalCourse> run_local(const LocalRun& run, const ModelConfig& config, Interval steps) {
  std::vector<LocalCourse> courses(static_cast<size_t>(run.sizes.replicate));
  const int ranks = Grid(run.sizes).ranks();
  run_ranks(ranks, [&](Communicator& world, const Context& context) {
    const Workers workers(world, run.sizes);
    const Mesh& mesh = workers.mesh();
    Decoder decoder(config, {}, {}, ModelRanks(mesh));
    ShardedModel::Options sharding = run.sharding;
    sharding.policy = Policy::stage(run.stage);
    ShardedModel model(context, mesh, decoder, sharding);
    LocalSteps local(model, workers, run.options);
    if (run.resumed.empty()) {
      model.load(InitialState(3));
      local.begin();
    } else {
      Checkpoint checkpoint(last_checkpoint(run.resumed), decoder);
      checkpoint.choose_worker(workers.index(), /*own_masters=*/true);
      model.load(checkpoint, steps.begin);
      checkpoint.choose_worker(workers.index(), /*own_masters=*/false);
      local.load(checkpoint, steps.begin, /*exact=*/true);
    }
    Engine engine(model);
    LocalCourse mine;
    const Communicator& samples = mesh.group(Group::samples);
    const int readers = samples.size() * workers.count(), reader = workers.index() * samples.size() + samples.rank();
    for (int64_t step = steps.begin; step < steps.end; ++step) {
      const Batch batch = local_rows(*context.memory, config, step, reader, readers);
      double targets = 0;
      for (int i = 0; i < samples.size(); ++i)
        targets += CrossEntropyObjective().weight(
            local_rows(*context.memory, config, step, workers.index() * samples.size() + i, readers));
      mine.losses.push_back(engine.step(std::span(&batch, 1), targets, run.lr, run.max_norm).loss);
      const int64_t before = workers.peers().traffic().total_elements();
      if (step < run.meets_until) local.after_step(step + 1);
      mine.sent.push_back(workers.peers().traffic().total_elements() - before);
    }
    if (!run.saved.empty())
      save_checkpoint(model, {.step = steps.end, .world_size = world.size()}, run.saved, {}, {&world, &local});
    if (run.finishes) local.finish(steps.end);
    mine.weights = whole_values(model);
    if (mesh.world().rank() == 0) courses[static_cast<size_t>(workers.index())] = std::move(mine);
  });
  return courses;
}

}  // namespace nought::test
