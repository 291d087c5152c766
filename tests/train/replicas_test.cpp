// Replicas that differ by one bit are found, and the rank that holds it is named by majority, before it is saved.
#include "nought/train/replicas.h"

#include <bit>
#include <mutex>

#include "support/cut_units.h"
#include "support/message_of.h"
#include "support/tiny_llama.h"
#include "support/trainer_runs.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/base/host.h"
#include "nought/comm/thread.h"
#include "nought/kernels/watch.h"
#include "nought/models/decoder.h"
#include "nought/train/trainer.h"

namespace nought::replicas_test {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(Replicas, the_majority_says_who_differs_and_in_what) {
  const auto differing = [](std::vector<int64_t> hashes, int ranks) { return compare_replicas(hashes, ranks); };
  EXPECT_THAT(differing({7, 8, 7, 8, 7, 8}, 3).tensors, IsEmpty());
  const ReplicaDifference one = differing({7, 8, 7, 8, 7, 9}, 3);
  EXPECT_THAT(one.tensors, ElementsAre(1u));
  EXPECT_THAT(one.ranks, ElementsAre(2));
  EXPECT_TRUE(one.majority);
  const ReplicaDifference two = differing({1, 5, 2, 5, 2, 5, 2, 6}, 4);
  EXPECT_THAT(two.tensors, ElementsAre(0u, 1u));
  EXPECT_THAT(two.ranks, ElementsAre(0, 3));
}

TEST(Replicas, of_two_there_is_no_majority_and_of_two_against_two_neither) {
  for (const auto& [hashes, ranks] :
       {std::pair(std::vector<int64_t>{1, 2}, 2), std::pair(std::vector<int64_t>{1, 1, 2, 2}, 4),
        std::pair(std::vector<int64_t>{1, 2, 3}, 3)}) {
    const ReplicaDifference difference = compare_replicas(hashes, ranks);
    EXPECT_THAT(difference.tensors, ElementsAre(0u));
    EXPECT_THAT(difference.ranks, IsEmpty());
    EXPECT_FALSE(difference.majority);
  }
}

void flip_bit(const Tensor& tensor, int64_t byte) { tensor.raw()[byte] ^= std::byte{16}; }

/// What each rank says when `damage` has been done to rank 1's model.
template <class Damage>
std::vector<std::string> said_by(int ranks, int stage, DType dtype, const Damage& damage,
                                 const std::string& saved = "out/checkpoint-20") {
  std::vector<std::string> messages(static_cast<size_t>(ranks));
  run_ranks(ranks, [&](Communicator& group, const Context& context) {
    Decoder decoder(test::tiny_llama());
    ShardedModel model(context, group, decoder,
                       {.policy = Policy::stage(stage), .dtype = dtype, .gradient_dtype = dtype});
    model.load(InitialState(5));
    require_same_replicas(model, 39, saved);  // healthy
    if (group.rank() == 1) damage(model);
    messages[static_cast<size_t>(group.rank())] =
        test::message_of<Error>([&] { require_same_replicas(model, 40, saved); });
  });
  return messages;
}

TEST(Replicas, a_flipped_bit_of_a_parameter_names_rank_host_and_tensor_alike_on_all_ranks) {
  for (const int stage : {0, 1, 2})
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const auto messages = said_by(3, stage, dtype, [](ShardedModel& model) {
        flip_bit(model.residency().updating({1, 0}), 40);
      });
      EXPECT_THAT(
          messages,
          Each(AllOf(HasSubstr("step 40: rank 1 on " + host_name() + " holds other bits than most of the 3 ranks"),
                     HasSubstr("in 1 of "), HasSubstr("tensors: model.layers.0."),
                     HasSubstr("go back with --resume out/checkpoint-20, without that host"))))
          << stage;
    }
}

TEST(Replicas, optimizer_states_and_masters_are_replicas_at_stage_0_alone) {
  const auto damage = [](ShardedModel& model) {
    bool done = false;
    model.optimizer().for_each_kept([&](const Parameter&, StateKind kind, const Tensor& tensor) {
      if (done || kind != StateKind::exp_avg) return;
      done = true;
      flip_bit(tensor, 0);
    });
    ASSERT_TRUE(done);
  };
  for (const DType dtype : {DType::f32, DType::bf16})
    EXPECT_THAT(said_by(3, 0, dtype, damage), Each(AllOf(HasSubstr("rank 1 on "), HasSubstr("exp_avg of "))));
  EXPECT_THAT(said_by(3, 1, DType::f32, damage), Each("")) << "each rank has states of its own";
}

TEST(Replicas, a_shard_of_stage_3_is_on_one_rank_and_all_gather_the_same_from_it) {
  EXPECT_THAT(said_by(3, 3, DType::f32,
                      [](ShardedModel& model) {
                        flip_bit(model.residency().updating({1, 0}), 40);
                      }),
              Each(""));
}

TEST(Replicas, two_ranks_that_differ_are_told_without_blaming_one) {
  EXPECT_THAT(said_by(
                  2, 1, DType::f32,
                  [](ShardedModel& model) {
                    flip_bit(model.residency().updating({1, 0}), 40);
                  },
                  ""),
              Each(AllOf(HasSubstr("step 40: the 2 ranks hold different bits, and no value is that of most in 1 of "),
                         HasSubstr("no checkpoint was saved before: begin the run again"))));
}

TEST(Replicas, states_that_a_stage_shards_are_compared_with_those_of_other_replicas) {
  for (const int stage : {1, 3}) {
    std::vector<std::string> messages(6);
    run_ranks(6, [&](Communicator& world, const Context& context) {
      Decoder decoder(test::tiny_llama());
      ShardedModel model(context, Mesh(world, {.replicate = 3, .shard = 2}), decoder, {.policy = Policy::stage(stage)});
      model.load(InitialState(5));
      require_same_replicas(model, 39, "");  // healthy
      bool done = world.rank() != 3;
      model.optimizer().for_each_kept([&](const Parameter&, StateKind kind, const Tensor& tensor) {
        if (!done && kind == StateKind::exp_avg_sq) flip_bit(tensor, 0), done = true;
      });
      messages[static_cast<size_t>(world.rank())] =
          test::message_of<Error>([&] { require_same_replicas(model, 40, ""); });
    });
    EXPECT_THAT(messages, Each(AllOf(HasSubstr("step 40: rank 3 on "), HasSubstr("than most of the 3 ranks in 1 of "),
                                     HasSubstr("exp_avg_sq of "))))
        << stage;
  }
}

/// What each of six ranks says of a model with experts when a bit of rank 3 has flipped.
std::vector<std::string> said_of_parts(const GridSizes& sizes, int stage, SegmentIndex damaged) {
  std::vector<std::string> messages(6);
  run_ranks(6, [&](Communicator& world, const Context& context) {
    const Mesh mesh(world, sizes);
    test::CutUnits units(mesh);
    ShardedModel model(context, mesh, units, {.policy = Policy::stage(stage)});
    model.load(InitialState(5));
    test::walk_back(model, 1);
    model.update(/*lr=*/0.1, /*gradient_scale=*/1);
    require_same_replicas(model, 39, "");  // healthy
    if (world.rank() == 3) flip_bit(model.residency().updating(damaged), 40);
    messages[static_cast<size_t>(world.rank())] =
        test::message_of<Error>([&] { require_same_replicas(model, 40, ""); });
  });
  return messages;
}

TEST(Replicas, experts_are_compared_by_the_ranks_that_hold_the_same_ones_and_all_ranks_are_told) {
  for (const int stage : {0, 1, 2}) {
    EXPECT_THAT(
        said_of_parts({.shard = 6, .expert = 2}, stage, {2, 0}),
        Each(AllOf(HasSubstr("step 40: rank 3 on "), HasSubstr("most of the 3 ranks"), HasSubstr(": 2.gate;"))));
    EXPECT_THAT(said_of_parts({.shard = 6, .expert = 6}, stage, {2, 0}), Each("")) << "no rank has the same";
  }
}

TEST(Replicas, a_part_of_a_matrix_is_compared_by_the_ranks_that_hold_it) {
  EXPECT_THAT(said_of_parts({.shard = 3, .tensor = 2}, 0, {0, 0}),
              Each(AllOf(HasSubstr("step 40: rank 3 on "), HasSubstr("most of the 3 ranks"), HasSubstr(": rows;"))));
}

/// A run of three ranks at stage 0, in which a bit of a parameter flips on rank 2 in the second to fourth step. What
/// ended it, if anything did.
std::string run_with_a_flip(RunPlan plan, test::ToldRun& told) {
  plan.layout.ranks = 3;
  std::vector<Context> contexts{Context::cpu(), Context::cpu(), Context::cpu()};
  int updates = 0;  // of parameters, on rank 2
  contexts[2].kernels = make_watching_kernels(
      contexts[2].kernels, [&](std::string_view operation, std::string_view result, const Tensor& values) {
        if (operation != "Adam" || result != "parameter") return;
        if (++updates == 70) flip_bit(values, 0);  // a step has 21 to 69 of them
      });
  return test::message_of<Error>([&] {
    run_ranks(contexts, [&](Communicator& world, const Context& context) {
      Trainer(plan, StartMode::overwrite, world, context, {&told}).run();
    });
  });
}

TEST(Replicas, a_run_ends_at_the_next_comparison_and_saves_nothing_that_differs) {
  const test::TempFolder folder;
  RunPlan plan = test::plan_on_lines(folder);
  plan.layout.micro_batch = 1;
  plan.train_batch = 3, plan.max_steps = 8, plan.save_steps = 1;
  plan.schedule = {.type = ScheduleType::constant, .peak_lr = 1e-3, .warmup_steps = 0, .total_steps = 8};
  test::ToldRun off;
  EXPECT_EQ(run_with_a_flip(plan, off), "");
  EXPECT_THAT(off.events, testing::Contains("saved checkpoint-8")) << "nobody has noticed";
  plan.weight_hash_interval = 100;
  test::ToldRun on;
  const std::string message = run_with_a_flip(plan, on);
  EXPECT_THAT(message,
              AllOf(HasSubstr("rank 2 on "), HasSubstr("of the 3 ranks"), HasSubstr("go back with --resume ")));
  const std::string last = on.events[on.events.size() - 2].substr(6);  // "saved checkpoint-3"
  EXPECT_THAT(message, HasSubstr((folder / "out").string() + "/" + last + ","))
      << "the last checkpoint before the flip";
  plan.save_steps = 0, plan.weight_hash_interval = 4;
  test::ToldRun seldom;
  EXPECT_THAT(run_with_a_flip(plan, seldom), HasSubstr("step 4: rank 2 on "));
  EXPECT_THAT(seldom.events, ElementsAre("start after 0", "step 1", "step 2", "step 3", "step 4"));
}

}  // namespace
}  // namespace nought::replicas_test
