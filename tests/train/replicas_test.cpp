// Replicas that differ by one bit are found, and the rank that holds it is named by majority, before it is saved.
#include "nought/diagnose/replicas.h"

#include <bit>
#include <mutex>

#include "support/cut_units.h"
#include "support/message_of.h"
#include "support/tiny_llama.h"
#include "support/trainer_runs.h"
#include "support/training_case.h"
#include "support/watched_context.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/base/host.h"
#include "nought/comm/thread.h"
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

/// What a rank says of a healthy model, of which one rank then damages something.
template <class Damage>
std::string said_of(ShardedModel& model, int damaged, const Damage& damage, const std::string& saved) {
  require_same_replicas(model, 39, saved);
  if (model.mesh().world().rank() == damaged) damage(model);
  return test::message_of<Error>([&] { require_same_replicas(model, 40, saved); });
}

/// What each rank says when `damage` has been done to one rank's model.
template <class Damage>
std::vector<std::string> said_by(const GridSizes& sizes, int stage, DType dtype, const Damage& damage,
                                 const std::string& saved = "out/checkpoint-20", int damaged = 1) {
  const test::TrainingCase each = test::learning(test::tiny_llama(), {.sizes = sizes, .stage = stage}).in(dtype);
  std::vector<std::string> messages(static_cast<size_t>(each.mesh.ranks()));
  each.on_ranks([&](test::TrainingRank& rank) {
    messages[static_cast<size_t>(rank.world.rank())] = said_of(rank.model, damaged, damage, saved);
  });
  return messages;
}

void flip_bit_of_block(ShardedModel& model) { flip_bit(model.residency().updating({1, 0}), 40); }

/// A bit of the first state of this kind.
auto flip_bit_of(StateKind wanted) {
  return [wanted](ShardedModel& model) {
    bool done = false;
    model.optimizer().for_each_kept([&](const Parameter&, StateKind kind, const Tensor& tensor) {
      if (!done && kind == wanted) flip_bit(tensor, 0), done = true;
    });
    ASSERT_TRUE(done);
  };
}

TEST(Replicas, a_flipped_bit_of_a_parameter_names_rank_host_and_tensor_alike_on_all_ranks) {
  for (const int stage : {0, 1, 2})
    for (const DType dtype : {DType::f32, DType::bf16}) {
      EXPECT_THAT(
          said_by({.shard = 3}, stage, dtype, flip_bit_of_block),
          Each(AllOf(HasSubstr("step 40: rank 1 on " + host_name() + " holds other bits than most of the 3 ranks"),
                     HasSubstr("in 1 of "), HasSubstr("tensors: model.layers.0."),
                     HasSubstr("go back with --resume out/checkpoint-20, without that host"))))
          << stage;
    }
}

TEST(Replicas, optimizer_states_and_masters_are_replicas_at_stage_0_alone) {
  for (const DType dtype : {DType::f32, DType::bf16})
    EXPECT_THAT(said_by({.shard = 3}, 0, dtype, flip_bit_of(StateKind::exp_avg)),
                Each(AllOf(HasSubstr("rank 1 on "), HasSubstr("exp_avg of "))));
  EXPECT_THAT(said_by({.shard = 3}, 1, DType::f32, flip_bit_of(StateKind::exp_avg)), Each(""))
      << "each rank has states of its own";
}

TEST(Replicas, a_shard_of_stage_3_is_on_one_rank_and_all_gather_the_same_from_it) {
  EXPECT_THAT(said_by({.shard = 3}, 3, DType::f32, flip_bit_of_block), Each(""));
}

TEST(Replicas, two_ranks_that_differ_are_told_without_blaming_one) {
  EXPECT_THAT(said_by({.shard = 2}, 1, DType::f32, flip_bit_of_block, ""),
              Each(AllOf(HasSubstr("step 40: the 2 ranks hold different bits, and no value is that of most in 1 of "),
                         HasSubstr("no checkpoint was saved before: begin the run again"))));
}

TEST(Replicas, states_that_a_stage_shards_are_compared_with_those_of_other_replicas) {
  for (const int stage : {1, 3})
    EXPECT_THAT(said_by({.replicate = 3, .shard = 2}, stage, DType::f32, flip_bit_of(StateKind::exp_avg_sq), "", 3),
                Each(AllOf(HasSubstr("step 40: rank 3 on "), HasSubstr("than most of the 3 ranks in 1 of "),
                           HasSubstr("exp_avg_sq of "))))
        << stage;
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
    messages[static_cast<size_t>(world.rank())] = said_of(
        model, 3, [&](ShardedModel& each) { flip_bit(each.residency().updating(damaged), 40); }, "");
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
  contexts[2] =
      test::watched(contexts[2], [&](std::string_view operation, std::string_view result, const Tensor& values) {
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
  RunPlan plan = test::plan_on_lines(folder, 8, 1e-3);
  plan.layout.micro_batch = 1;
  plan.layout.ranks = 3, plan.save_steps = 1;
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
