// Asynchronous data parallelism with rotating servers: which parameters gradients are of, and what is sent.
#include "nought/zero/rotating_servers.h"

#include <chrono>
#include <thread>

#include "support/message_of.h"
#include "support/training_case.h"
#include <gtest/gtest.h>

#include "nought/comm/thread.h"

namespace nought::rotating_servers_test {
namespace {

using test::expect_same_bits;
using test::sharded;
using test::TrainingCase;
using test::TrainingRank;
using test::TrainingResult;

struct AsyncRun {
  TrainingCase of = {.mesh = sharded(2, 1)};
  int64_t staleness = 0;
  std::function<void(int rank, int64_t step)> before_step = [](int, int64_t) {};
};

struct AsyncResult {
  std::vector<double> losses, norms;  // of the updates in their order
  test::WholeTensors weights;
  std::vector<int64_t> histogram, staleness, sent;
};

AsyncResult run_async(const AsyncRun& run) {
  AsyncResult result;
  TrainingCase local = run.of;
  local.settings.local_gradients = true;
  local.on_ranks([&](TrainingRank& rank) {
    const auto alone = [&] { return rank.world.split(0, rank.world.rank()); };
    RotatingServers servers(rank.model, alone(), alone(), run.staleness);
    servers.begin(0);
    AsyncResult mine;
    const auto take = [&](const RotatingServers::Completed& completed) {
      mine.losses.push_back(completed.loss), mine.norms.push_back(completed.grad_norm);
      mine.staleness.push_back(completed.staleness);
    };
    for (int64_t step = 0; step < run.of.steps.end; ++step) {
      run.before_step(rank.world.rank(), step);
      const double targets = rank.targets(step);
      const StepResult passes = rank.engine.pass(rank.batches(step), targets);
      const int64_t before = servers.traffic().total_elements();
      servers.push({.loss_sum = passes.loss, .total_weight = targets, .lr = run.of.lr, .max_norm = run.of.clipping});
      if (const auto completed = servers.pull()) take(*completed);
      if (run.staleness == 0) mine.sent.push_back(servers.traffic().total_elements() - before);
    }
    for (const RotatingServers::Completed& completed : servers.drain()) take(completed);
    mine.histogram = servers.histogram();
    mine.weights = rank.weights();
    if (rank.is_first()) result = std::move(mine);
  });
  return result;
}

template <class Result>
void expect_same(const AsyncResult& result, const Result& expected) {
  EXPECT_EQ(result.losses, expected.losses);
  EXPECT_EQ(result.norms, expected.norms);
  expect_same_bits(result.weights, expected.weights);
}

TEST(RotatingServers, staleness_0_has_the_bits_of_synchronous_training) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const int ranks : {1, 2, 4}) {
      AsyncRun run{.of = {.mesh = sharded(ranks, 1)}};
      run.of.settings.dtype = dtype;
      expect_same(run_async(run), run.of.run());
    }
}

TEST(RotatingServers, staleness_1_has_the_bits_of_updates_that_are_put_off_by_a_step) {
  TrainingCase delayed = AsyncRun().of;
  delayed.settings.offload_optimizer.delay_after = 0;
  expect_same(run_async({.staleness = 1}), delayed.run());
}

TEST(RotatingServers, a_rank_that_is_slow_changes_no_bit) {
  AsyncRun run{.of = {.mesh = sharded(4, 1)}, .staleness = 3};
  const AsyncResult plain = run_async(run);
  run.before_step = [](int rank, int64_t step) {
    if ((rank + step) % 3 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(3 * (rank + 1)));
  };
  expect_same(run_async(run), plain);
}

TEST(RotatingServers, gradients_lack_as_many_updates_as_are_allowed_and_never_more) {
  for (const int64_t staleness : {int64_t{0}, int64_t{1}, int64_t{3}}) {
    const AsyncResult result = run_async({.of = {.mesh = sharded(2, 1), .steps = {0, 8}}, .staleness = staleness});
    std::vector<int64_t> expected, histogram(static_cast<size_t>(staleness) + 1);
    for (int64_t step = 0; step < 8; ++step) {
      expected.push_back(std::min(step, staleness));
      ++histogram[static_cast<size_t>(expected.back())];
    }
    EXPECT_EQ(result.staleness, expected);
    EXPECT_EQ(result.histogram, histogram);
  }
}

TEST(RotatingServers, no_link_carries_more_than_synchronous_training_sends) {
  const Decoder decoder(AsyncRun().of.model);
  for (const int ranks : {2, 4}) {
    int64_t padded = 0;
    for (const auto& unit : decoder.units())
      for (const Segment& segment : unit->segments()) padded += Partition(segment, ranks).padded();
    // And the all-reduce of the sums of squares, of the loss and of the wish to stop.
    const auto numbers = static_cast<int64_t>(decoder.units().size()) + 2;
    for (const int64_t sent : run_async({.of = {.mesh = sharded(ranks, 1), .steps = {0, 2}}}).sent) {
      EXPECT_GE(sent, 2 * padded * (ranks - 1) / ranks);
      EXPECT_LE(sent, 2 * padded * (ranks - 1) / ranks + 2 * numbers);
    }
  }
}

TEST(RotatingServers, a_rank_that_fails_ends_all) {
  AsyncRun run{.of = {.mesh = sharded(3, 1), .rows = {.of_step = 24}}, .staleness = 2};
  run.before_step = [](int rank, int64_t step) { require(rank != 1 || step != 3, "rank 1 has had enough"); };
  EXPECT_NE(test::message_of<Error>([&] { run_async(run); }).find("rank 1 has had enough"), std::string::npos);
}

}  // namespace
}  // namespace nought::rotating_servers_test
