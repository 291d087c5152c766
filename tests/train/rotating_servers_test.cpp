// Asynchronous data parallelism with rotating servers: which parameters gradients are of, and what is sent.
#include "nought/zero/rotating_servers.h"

#include <chrono>
#include <thread>

#include "support/mesh_runs.h"
#include "support/message_of.h"
#include "support/temp_folder.h"
#include <gtest/gtest.h>

namespace nought::rotating_servers_test {
namespace {

using test::Course;
using test::CourseOptions;

const ModelConfig& config() {
  static const ModelConfig model = test::dense_mesh_model();
  return model;
}

struct AsyncRun {
  int ranks = 2;
  int64_t staleness = 0, steps = 6;
  CourseOptions options = {};
  std::function<void(int rank, int64_t step)> before_step = [](int, int64_t) {};
};

struct AsyncCourse {
  Course course;  // of the updates in their order
  std::vector<int64_t> histogram, staleness, sent;
};

AsyncCourse run_async(const AsyncRun& run) {
  AsyncCourse result;
  run_ranks(run.ranks, [&](Communicator& world, const Context& context) {
    Decoder decoder(config());
    ShardedModel::Options sharding = run.options.sharding;
    sharding.policy = Policy::stage(1);
    sharding.local_gradients = true;
    ShardedModel model(context, world, decoder, sharding);
    model.load(InitialState(3));
    Engine engine(model);
    RotatingServers servers(model, world.split(0, world.rank()), world.split(0, world.rank()), run.staleness);
    servers.begin(0);
    AsyncCourse mine;
    const auto take = [&](const RotatingServers::Landed& landed) {
      mine.course.losses.push_back(landed.loss), mine.course.norms.push_back(landed.grad_norm);
      mine.staleness.push_back(landed.staleness);
    };
    for (int64_t step = 0; step < run.steps; ++step) {
      run.before_step(world.rank(), step);
      std::vector<Batch> batches;
      double targets = 0;
      for (int64_t i = 0; i < test::kMeshAccumulation; ++i) {
        batches.push_back(test::mesh_rows(*context.memory, config(), step, i, world.rank(), run.ranks));
        targets += CrossEntropyObjective().weight(test::mesh_rows(*context.memory, config(), step, i, 0, 1));
      }
      const StepResult passes = engine.pass(batches, targets);
      const int64_t before = servers.traffic().total_elements();
      servers.push({.loss_sum = passes.loss, .total_weight = targets, .lr = 2e-3, .max_norm = test::kMeshClipping});
      if (const auto landed = servers.pull()) take(*landed);
      if (run.staleness == 0) mine.sent.push_back(servers.traffic().total_elements() - before);
    }
    for (const RotatingServers::Landed& landed : servers.drain()) take(landed);
    mine.histogram = servers.histogram();
    mine.course.weights = test::whole_values(model);
    if (world.rank() == 0) result = std::move(mine);
  });
  return result;
}

void expect_same_bits(const Course& a, const Course& b) {
  EXPECT_EQ(a.losses, b.losses);
  EXPECT_EQ(a.norms, b.norms);
  EXPECT_EQ(a.weights, b.weights);
}

TEST(RotatingServers, staleness_0_has_the_bits_of_synchronous_training) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const int ranks : {1, 2, 4}) {
      AsyncRun run{.ranks = ranks};
      run.options.sharding.dtype = dtype;
      expect_same_bits(run_async(run).course,
                       test::train_on({.sizes = {.shard = ranks}, .stage = 1}, config(), {0, run.steps}, run.options));
    }
}

TEST(RotatingServers, staleness_1_has_the_bits_of_updates_that_are_put_off_by_a_step) {
  AsyncRun run{.staleness = 1};
  CourseOptions delayed = run.options;
  delayed.sharding.offload_optimizer.delay_after = 0;
  expect_same_bits(run_async(run).course,
                   test::train_on({.sizes = {.shard = 2}, .stage = 1}, config(), {0, run.steps}, delayed));
}

TEST(RotatingServers, a_rank_that_is_slow_changes_no_bit) {
  AsyncRun run{.ranks = 4, .staleness = 3};
  const Course plain = run_async(run).course;
  run.before_step = [](int rank, int64_t step) {
    if ((rank + step) % 3 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(3 * (rank + 1)));
  };
  expect_same_bits(run_async(run).course, plain);
}

TEST(RotatingServers, gradients_lack_as_many_updates_as_are_allowed_and_never_more) {
  for (const int64_t staleness : {int64_t{0}, int64_t{1}, int64_t{3}}) {
    const AsyncCourse course = run_async({.staleness = staleness, .steps = 8});
    std::vector<int64_t> expected, histogram(static_cast<size_t>(staleness) + 1);
    for (int64_t step = 0; step < 8; ++step) {
      expected.push_back(std::min(step, staleness));
      ++histogram[static_cast<size_t>(expected.back())];
    }
    EXPECT_EQ(course.staleness, expected);
    EXPECT_EQ(course.histogram, histogram);
  }
}

TEST(RotatingServers, no_link_carries_more_than_synchronous_training_sends) {
  const Decoder decoder(config());
  for (const int ranks : {2, 4}) {
    int64_t padded = 0;
    for (const auto& unit : decoder.units())
      for (const Segment& segment : unit->segments()) padded += Partition(segment, ranks).padded();
    // And the all-reduce of the sums of squares, of the loss and of the wish to stop.
    const auto numbers = static_cast<int64_t>(decoder.units().size()) + 2;
    for (const int64_t sent : run_async({.ranks = ranks, .steps = 2}).sent) {
      EXPECT_GE(sent, 2 * padded * (ranks - 1) / ranks);
      EXPECT_LE(sent, 2 * padded * (ranks - 1) / ranks + 2 * numbers);
    }
  }
}

TEST(RotatingServers, a_rank_that_fails_ends_all) {
  AsyncRun run{.ranks = 3, .staleness = 2};
  run.before_step = [](int rank, int64_t step) { require(rank != 1 || step != 3, "rank 1 has had enough"); };
  EXPECT_NE(test::message_of<Error>([&] { run_async(run); }).find("rank 1 has had enough"), std::string::npos);
}

}  // namespace
}  // namespace nought::rotating_servers_test
