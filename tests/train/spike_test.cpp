// A step whose loss or gradient norm jumps is computed again: a fault of the hardware leaves no trace in the run, and
// what the data or the model did stays.
#include "nought/engine/spike.h"

#include <bit>
#include <cmath>
#include <limits>

#include "support/message_of.h"
#include "support/tiny_llama.h"
#include "support/training_case.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/base/host.h"

namespace nought::spike_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

TEST(SpikeWatch, judges_by_the_average_of_ten_steps_at_least) {
  SpikeWatch watch(2);
  for (int i = 0; i < 9; ++i) watch.add(3, 1);
  EXPECT_FALSE(watch.is_spike(100, 1)) << "nine steps are too few";
  watch.add(3, 1);
  EXPECT_DOUBLE_EQ(watch.loss(), 3);
  EXPECT_FALSE(watch.is_spike(5.9, 1.9));
  EXPECT_TRUE(watch.is_spike(6.1, 1)) << "the loss";
  EXPECT_TRUE(watch.is_spike(3, 2.1)) << "the norm";
  for (int i = 0; i < 200; ++i) watch.add(10, 1);
  EXPECT_FALSE(watch.is_spike(15, 1)) << "a new level is learned";
}

TEST(SpikeWatch, a_number_that_is_not_finite_is_a_spike_at_once_and_never_averaged) {
  SpikeWatch watch(2);
  EXPECT_TRUE(watch.is_spike(std::nan(""), 1));
  EXPECT_TRUE(watch.is_spike(1, std::numeric_limits<double>::infinity()));
  watch.add(std::nan(""), 2);
  EXPECT_EQ(watch.loss(), 0);
  EXPECT_EQ(watch.grad_norm(), 2);
}

constexpr int kRanks = 3, kSteps = 14, kSpikeAt = 12;

/// What rank 1's hardware does wrong in step kSpikeAt: the highest bit of an exponent is flipped.
struct Fault {
  std::string operation = {}, result = {};
  int times = 0;         // of the runs of the operation in that step
  bool wanders = false;  // each time it is another element
  int before = 0;        // runs of the operation in that step that are right
};

/// What comes out of a run of a tiny model.
struct Numbers {
  std::vector<double> losses, norms;
  std::vector<std::string> spikes;  // of each step
};

Numbers run_with(const Fault& fault, double factor, int stage = 0, const OffloadOptions& states = {}) {
  int left = 0;  // runs of the operation on rank 1 that are looked at
  test::TrainingCase each = test::learning(test::tiny_llama(), test::sharded(kRanks, stage));
  each.rows.of_step = kRanks, each.lr = 1e-3;
  each.settings.offload_optimizer = states;
  each.watched = 1;
  each.watcher = [&](std::string_view operation, std::string_view result, const Tensor& values) {
    if (left == 0 || operation != fault.operation || result != fault.result) return;
    if (left-- > fault.times) return;
    float& value = values.data<float>()[fault.wanders ? left % values.numel() : 3];
    value = std::bit_cast<float>(std::bit_cast<uint32_t>(value) ^ (1u << 30));
  };
  return each.on_rank(0, [&](test::TrainingRank& rank) {
    if (factor > 0) rank.engine.repeat_spikes(factor);
    Numbers run;
    for (int step = 1; step <= kSteps; ++step) {
      if (rank.world.rank() == 1) left = step == kSpikeAt ? fault.before + fault.times : 0;
      const StepResult result = rank.step(0);
      run.losses.push_back(result.loss), run.norms.push_back(result.grad_norm), run.spikes.push_back(result.spike);
    }
    return run;
  });
}

constexpr int kAlways = 1000;

TEST(Spike, a_healthy_run_repeats_nothing_and_its_numbers_do_not_change) {
  const Numbers off = run_with({}, 0), on = run_with({}, 3);
  EXPECT_EQ(on.losses, off.losses);
  EXPECT_EQ(on.norms, off.norms);
  EXPECT_THAT(on.spikes, testing::Each(""));
}

TEST(Spike, a_bit_that_flips_once_in_a_forward_pass_is_transient_names_its_rank_and_leaves_no_trace) {
  const Numbers healthy = run_with({}, 0);
  constexpr int kOtherNorms = 4;  // the last norm's result is normalized by none
  for (const int stage : {0, 1, 2, 3}) {
    const Numbers run = run_with({"RmsNorm", "y", 1, false, kOtherNorms}, 3, stage);
    EXPECT_EQ(run.losses, healthy.losses) << stage;
    EXPECT_EQ(run.norms, healthy.norms) << stage;
    EXPECT_THAT(run.spikes[kSpikeAt - 1], AllOf(HasSubstr("step 12: the loss is "),
                                                HasSubstr("a transient fault of the hardware (rank 1 on " +
                                                          host_name() + "); the update uses the repetition")));
    EXPECT_EQ(run.spikes[kSpikeAt], "");
  }
}

/// A repetition needs the weights of before.
TEST(Spike, an_update_that_began_before_the_spike_was_seen_leaves_no_trace) {
  const Numbers healthy = run_with({}, 0);
  const Fault fault{"RmsNormBackward", "d_weight", 1};
  for (const int stage : {0, 2}) {
    const Numbers run = run_with(fault, 3, stage, {.early = true, .undo = true});
    EXPECT_EQ(run.losses, healthy.losses);
    EXPECT_EQ(run.norms, healthy.norms);
    EXPECT_NE(run.spikes[kSpikeAt - 1], "");
  }
}

TEST(Spike, a_bit_that_flips_once_in_a_backward_pass_is_transient_too) {
  const Numbers healthy = run_with({}, 0), run = run_with({"RmsNormBackward", "d_weight", 1}, 3);
  EXPECT_EQ(run.losses, healthy.losses);
  EXPECT_EQ(run.norms, healthy.norms);
  EXPECT_THAT(
      run.spikes[kSpikeAt - 1],
      AllOf(HasSubstr("a transient fault of the hardware (a rank in its backward pass"), Not(HasSubstr("rank 1"))));
}

TEST(Spike, what_comes_again_with_the_same_bits_is_the_data_or_the_model_and_stays) {
  const Fault fault{"RmsNormBackward", "d_weight", kAlways};
  const Numbers off = run_with(fault, 0), on = run_with(fault, 3);
  EXPECT_GT(off.norms[kSpikeAt - 1], 10 * off.norms[kSpikeAt - 2]) << "a spike";
  EXPECT_EQ(on.losses, off.losses);
  EXPECT_EQ(on.norms, off.norms);
  EXPECT_THAT(on.spikes[kSpikeAt - 1],
              HasSubstr("computed again, every bit is the same: it is the data or the model, not the hardware"));
}

TEST(Spike, three_results_of_three_computations_end_the_run) {
  const Fault fault{"RmsNormBackward", "d_weight", kAlways, true};
  EXPECT_THAT(test::message_of<Error>([&] { run_with(fault, 3); }),
              AllOf(HasSubstr("step 12: "), HasSubstr("three computations from the same state gave three results"),
                    HasSubstr("the weights are those of the step before")));
}

}  // namespace
}  // namespace nought::spike_test
