// Local steps: what workers agree on when they meet, what they send, and what a checkpoint between two synchronizations
// holds.
#include "nought/zero/local_steps.h"

#include "support/message_of.h"
#include "support/temp_folder.h"
#include "support/training_case.h"
#include <gtest/gtest.h>

#include "nought/checkpoint/checkpoint.h"
#include "nought/comm/thread.h"

namespace nought::local_steps_test {
namespace {

using test::TrainingCase;
using test::WholeTensors;

const ModelConfig& model() {
  static const ModelConfig config = test::small_model("qk_norms");
  return config;
}

/// Rows of which all targets count, so that every worker has equally many.
constexpr test::Rows kRows{.of_step = 8, .learnable = true};

struct LocalRun {
  GridSizes sizes = {.replicate = 2};
  int stage = 0;
  LocalStepsOptions options = {};
  ShardedModel::Options sharding = TrainingCase().settings;
  double max_norm = 0, lr = 2e-3;
  int64_t meets_until = 1000;  // after later steps nobody meets
  bool finishes = false;
  std::string resumed = "", saved = "";  // folders of checkpoints; "" for none
};

/// What a worker's ranks have in common, by worker.
struct LocalCourse {
  std::vector<double> losses;  // of this worker
  WholeTensors weights;        // at the end
  std::vector<int64_t> sent;   // by the worker's first rank to its peers, elements by step
};

/// Steps [steps.begin, steps.end), of one micro-batch each.
std::vector<LocalCourse> run_local(const LocalRun& run, Interval steps) {
  std::vector<LocalCourse> courses(static_cast<size_t>(run.sizes.replicate));
  run_ranks(Grid(run.sizes).ranks(), [&](Communicator& world, const Context& context) {
    const Workers workers(world, run.sizes);
    const Mesh& mesh = workers.mesh();
    Decoder decoder(model(), {}, {}, ModelRanks(mesh));
    ShardedModel::Options sharding = run.sharding;
    sharding.policy = Policy::stage(run.stage);
    ShardedModel sharded(context, mesh, decoder, sharding);
    LocalSteps local(sharded, workers, run.options);
    if (run.resumed.empty()) {
      sharded.load(InitialState(3));
      local.begin();
    } else {
      Checkpoint checkpoint(last_checkpoint(run.resumed), decoder);
      checkpoint.choose_worker(workers.index(), /*own_masters=*/true);
      sharded.load(checkpoint, steps.begin);
      checkpoint.choose_worker(workers.index(), /*own_masters=*/false);
      local.load(checkpoint, steps.begin, /*exact=*/true);
    }
    Engine engine(sharded);
    LocalCourse mine;
    const Communicator& samples = mesh.group(Group::samples);
    const int readers = samples.size() * workers.count(), reader = workers.index() * samples.size() + samples.rank();
    for (int64_t step = steps.begin; step < steps.end; ++step) {
      const Batch batch = test::rows_of(*context.memory, model(), kRows, step, 0, 1, reader, readers);
      const auto targets = static_cast<double>(kRows.of_step * kRows.length / workers.count());
      mine.losses.push_back(engine.step(std::span(&batch, 1), targets, run.lr, run.max_norm).loss);
      const int64_t before = workers.peers().traffic().total_elements();
      if (step < run.meets_until) local.after_step(step + 1);
      mine.sent.push_back(workers.peers().traffic().total_elements() - before);
    }
    if (!run.saved.empty())
      save_checkpoint(sharded, {.step = steps.end, .world_size = world.size()}, run.saved, {}, {&world, &local});
    if (run.finishes) local.finish(steps.end);
    mine.weights = test::whole_weights(sharded);
    if (mesh.world().rank() == 0) courses[static_cast<size_t>(workers.index())] = std::move(mine);
  });
  return courses;
}

/// The weights that synchronous training of all workers has.
WholeTensors synchronous(const LocalRun& run, int64_t steps) {
  return TrainingCase{.mesh = {.sizes = run.sizes, .stage = run.stage},
                      .settings = run.sharding,
                      .steps = {0, steps},
                      .rows = kRows,
                      .accumulation = 1,
                      .lr = run.lr,
                      .clipping = run.max_norm}
      .run()
      .weights;
}

TEST(LocalSteps, one_step_of_sgd_between_meetings_is_synchronous_sgd) {
  for (const GridSizes sizes : {GridSizes{.replicate = 4}, GridSizes{.replicate = 2, .shard = 2}})
    for (const int stage : {0, 1, 3}) {
      LocalRun run{.sizes = sizes, .stage = stage, .options = {.sync_every = 1, .lr = 1, .momentum = 0}, .lr = 0.1};
      run.sharding.optimizer = {.method = SgdOptions{}};
      EXPECT_LT(test::largest_difference(run_local(run, {0, 6})[0].weights, synchronous(run, 6)), 3e-6)
          << sizes.shard << " ranks in a worker, stage " << stage;
    }
}

TEST(LocalSteps, a_meeting_is_a_step_of_nesterov_on_the_mean_of_the_changes) {
  LocalRun run{.options = {.sync_every = 2, .lr = 0.7, .momentum = 0.9}};
  const auto at = [&](int64_t steps, int64_t meets_until) {
    LocalRun each = run;
    each.meets_until = meets_until;
    return run_local(each, {0, steps});
  };
  const auto begin = at(0, 0), before = at(2, 0), met = at(2, 2), before_second = at(4, 2), met_twice = at(4, 4);
  double most = 0;
  for (const auto& [name, values] : begin[0].weights)
    for (size_t i = 0; i < values.size(); ++i) {
      const auto of = [&, &key = name](const std::vector<LocalCourse>& run_of, size_t worker) {
        return static_cast<double>(run_of[worker].weights.at(key)[i]);
      };
      const double theta = of(begin, 0), delta = theta - (of(before, 0) + of(before, 1)) / 2;
      most = std::max(most, std::abs(of(met, 0) - (theta - 0.7 * (delta + 0.9 * delta))));
      const double next = of(met, 0), change = next - (of(before_second, 0) + of(before_second, 1)) / 2;
      const double momentum = 0.9 * delta + change;
      most = std::max(most, std::abs(of(met_twice, 0) - (next - 0.7 * (change + 0.9 * momentum))));
    }
  EXPECT_LT(most, 1e-6);
  EXPECT_GT(test::largest_difference(met[0].weights, begin[0].weights), 1e-3);
}

TEST(LocalSteps, workers_have_the_same_bits_where_they_met_and_others_in_between) {
  LocalRun run{.sizes = {.replicate = 2, .shard = 2}, .stage = 3, .options = {.sync_every = 3}};
  for (const int64_t steps : {int64_t{3}, int64_t{6}, int64_t{5}}) {
    const auto courses = run_local(run, {0, steps});
    EXPECT_EQ(courses[0].weights == courses[1].weights, steps % 3 == 0) << steps;
  }
  run.finishes = true;
  const auto ended = run_local(run, {0, 5});
  EXPECT_EQ(ended[0].weights, ended[1].weights);
}

TEST(LocalSteps, zero_stages_inside_workers_agree_bit_for_bit) {
  LocalRun run{.sizes = {.replicate = 2, .shard = 2}, .options = {.sync_every = 2, .fragments = 2}, .max_norm = 0.2};
  const auto plain = run_local(run, {0, 5});
  for (const int stage : {1, 2, 3}) {
    run.stage = stage;
    const auto sharded = run_local(run, {0, 5});
    EXPECT_EQ(sharded[0].losses, plain[0].losses) << stage;
    EXPECT_EQ(sharded[0].weights, plain[0].weights) << stage;
    EXPECT_EQ(sharded[1].weights, plain[1].weights) << stage;
  }
}

TEST(LocalSteps, every_axis_inside_a_worker_follows_one_rank_per_worker) {
  LocalRun run{.options = {.sync_every = 2}};
  const auto alone = run_local(run, {0, 4});
  for (const GridSizes sizes :
       {GridSizes{.replicate = 2, .tensor = 2, .expert_tensor = 2}, GridSizes{.replicate = 2, .context = 2}}) {
    run.sizes = sizes, run.stage = 1;
    EXPECT_LT(test::largest_difference(run_local(run, {0, 4})[1].weights, alone[1].weights), 1e-5);
  }
}

TEST(LocalSteps, workers_send_a_hth_of_what_synchronous_training_sends) {
  const LocalRun run{.options = {.sync_every = 3}};
  const auto courses = run_local(run, {0, 6});
  int64_t padded = 0;
  const Decoder decoder(model());
  for (const auto& unit : decoder.units())
    for (const Segment& segment : unit->segments()) padded += Partition(segment, 1).padded();
  // An all-reduce over 2 ranks: 2 (k - 1) / k of what there is.
  EXPECT_EQ(courses[0].sent, (std::vector<int64_t>{0, 0, padded, 0, 0, padded}));
}

TEST(LocalSteps, fragments_meet_in_turn_and_send_all_together_what_one_would) {
  LocalRun run{.options = {.sync_every = 4, .fragments = 2}};
  const auto whole = run_local({.options = {.sync_every = 4}}, {0, 4})[0].sent;
  const auto parts = run_local(run, {0, 4})[0].sent;
  EXPECT_GT(parts[1], 0);
  EXPECT_GT(parts[3], 0);
  EXPECT_EQ(parts[1] + parts[3], whole[3]);
  EXPECT_EQ(parts[0] + parts[2], 0);
  // What begins to meet is what is sent at once, however late it is used.
  run.options.delay = 1;
  EXPECT_EQ(run_local(run, {0, 4})[0].sent, parts);
}

TEST(LocalSteps, a_delayed_result_is_of_the_weights_when_the_meeting_began) {
  // Without momentum at rate 1 the anchor becomes the workers' mean of then. All that a worker has learned since is
  // lost with alpha 0, and a half of the difference with 1/2; with 1 nobody takes anything from the others.
  LocalRun run{.options = {.sync_every = 4, .delay = 2, .lr = 1, .momentum = 0}};
  const auto at = [&](int64_t steps, double keeps, int64_t meets_until) {
    LocalRun each = run;
    each.options.keeps_local = keeps, each.meets_until = meets_until;
    return run_local(each, {0, steps});
  };
  const auto began = at(4, 0, 0), alone = at(6, 0, 0), none = at(6, 0, 6), half = at(6, 0.5, 6), all = at(6, 1, 6);
  double most = 0;
  for (const auto& [name, values] : began[0].weights)
    for (size_t i = 0; i < values.size(); ++i) {
      const double mean = (static_cast<double>(values[i]) + static_cast<double>(began[1].weights.at(name)[i])) / 2;
      const auto own = static_cast<double>(alone[1].weights.at(name)[i]);
      most = std::max(most, std::abs(static_cast<double>(none[1].weights.at(name)[i]) - mean));
      most = std::max(most, std::abs(static_cast<double>(half[1].weights.at(name)[i]) - (mean + own) / 2));
    }
  EXPECT_LT(most, 1e-6);
  EXPECT_EQ(all[1].weights, alone[1].weights);
  EXPECT_NE(none[1].weights, alone[1].weights);
}

TEST(LocalSteps, a_run_that_resumes_between_meetings_has_the_bits_of_an_undisturbed_one) {
  LocalRun plain{.sizes = {.replicate = 2, .shard = 2}, .stage = 3, .options = {.sync_every = 4}};
  LocalRun streaming = plain;
  streaming.stage = 1;
  streaming.options = {.sync_every = 6, .fragments = 2, .delay = 2, .keeps_local = 0.25};
  LocalRun bf16 = plain;
  bf16.sharding.dtype = bf16.sharding.gradient_dtype = DType::bf16;
  for (const LocalRun& run : {plain, streaming, bf16})
    for (const int64_t cut : {int64_t{4}, int64_t{7}}) {
      const test::TempFolder folder;
      const auto whole = run_local(run, {0, 11});
      LocalRun first = run, second = run;
      first.saved = second.resumed = folder.path().string();
      run_local(first, {0, cut});
      const auto resumed = run_local(second, {cut, 11});
      for (const size_t worker : {size_t{0}, size_t{1}}) {
        EXPECT_EQ(resumed[worker].weights, whole[worker].weights) << "from step " << cut;
        EXPECT_EQ(resumed[worker].losses,
                  std::vector<double>(whole[worker].losses.begin() + cut, whole[worker].losses.end()));
      }
    }
}

TEST(LocalSteps, more_fragments_than_units_are_refused_by_name) {
  const std::string message = test::message_of<ConfigError>([] {
    run_local({.options = {.sync_every = 99, .fragments = 99}}, {0, 1});
  });
  EXPECT_NE(message.find("num_fragments = 99: the model has"), std::string::npos) << message;
}

}  // namespace
}  // namespace nought::local_steps_test
