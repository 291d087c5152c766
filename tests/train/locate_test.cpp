// A value that is not finite is named by rank, Unit, pass, operation and step, alike on every rank, at every stage.
#include "nought/engine/locate.h"

#include <limits>

#include "support/message_of.h"
#include "support/training_case.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nought::locate_test {
namespace {

using test::sharded;
using test::TrainingCase;
using test::TrainingRank;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::StartsWith;

constexpr int kRanks = 2;

TrainingCase on(const test::MeshLayout& mesh, const ModelConfig& model = test::small_model("grouped_heads", 3)) {
  TrainingCase each = test::learning(model, mesh);
  each.rows.of_step = kRanks;
  return each;
}

/// Every layer has four experts, of which a token takes two. Each rank has two of them.
TrainingCase on_experts(int stage) {
  return on({.sizes = {.shard = kRanks, .expert = kRanks}, .stage = stage}, test::small_model("experts"));
}

/// One element of a result of this operation becomes infinite whenever rank 1 runs it.
TrainingCase poisoned(TrainingCase each, const std::string& operation, const std::string& poisoned_result) {
  each.watched = 1;
  each.watcher = [=](std::string_view op, std::string_view result, const Tensor& values) {
    if (op == operation && result == poisoned_result) values.data<float>()[3] = std::numeric_limits<float>::infinity();
  };
  return each;
}

/// Initial values, but for one element of one parameter.
class OneBadWeight final : public StateSource {
 public:
  explicit OneBadWeight(std::string name) : name_(std::move(name)) {}
  void fill(StateKind kind, const Parameter& parameter, std::span<const Interval> elements,
            const Tensor& destination) const override {
    InitialState(3).fill(kind, parameter, elements, destination);
    for_each_interval(elements, destination, [&](Interval interval, const Tensor& values) {
      if (kind == StateKind::master && parameter.name == name_ && interval.begin <= 7 && 7 < interval.end)
        values.data<float>()[7 - interval.begin] = std::numeric_limits<float>::quiet_NaN();
    });
  }

 private:
  std::string name_;
};

/// What each rank says of a step.
std::vector<std::string> messages_of(const TrainingCase& each) {
  std::vector<std::string> messages(kRanks);
  each.on_ranks([&](TrainingRank& rank) {
    messages[static_cast<size_t>(rank.world.rank())] = test::message_of<Error>([&] { rank.step(0); });
  });
  return messages;
}

void expect_names_parameter(TrainingCase each, const std::string& name) {
  each.load = [&](ShardedModel& model, Decoder&) { model.load(OneBadWeight(name)); };
  EXPECT_THAT(messages_of(each), Each(HasSubstr("first found at parameter " + name + " holds 1 nan before the step")));
}

TEST(Locate, an_activation_on_one_rank_is_named_alike_on_every_rank_at_every_stage) {
  for (const int stage : {0, 1, 2, 3})
    for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
      TrainingCase each = poisoned(on(sharded(kRanks, stage)), "GatedActivate", "y");
      each.recompute = recompute;
      const auto messages = messages_of(each);
      EXPECT_EQ(messages[0], messages[1]);
      EXPECT_THAT(messages, Each(AllOf(StartsWith("step 1: the loss is "),
                                       HasSubstr("first found at rank 1: block.0.mlp, forward, GatedActivate: y [8, "
                                                 "40] f32 holds 1 inf"))))
          << "stage " << stage;
    }
}

TEST(Locate, of_ranks_that_share_matrices_the_one_that_computed_it_is_named) {
  EXPECT_THAT(
      messages_of(poisoned(on({.sizes = {.tensor = kRanks}}), "GatedActivate", "y")),
      Each(HasSubstr("first found at rank 1: block.0.mlp, forward, GatedActivate: y [16, 20] f32 holds 1 inf")));
}

TEST(Locate, of_ranks_that_hold_different_experts_the_one_that_computed_it_is_named) {
  for (const int stage : {0, 3})
    EXPECT_THAT(messages_of(poisoned(on_experts(stage), "GatedActivate", "y")),
                Each(HasSubstr("first found at rank 1: block.0.experts, forward, GatedActivate: y [")))
        << stage;
}

TEST(Locate, a_parameter_of_an_expert_is_named_wherever_it_is) {
  for (const int expert : {0, 3})
    expect_names_parameter(on_experts(3), fmt::format("model.layers.1.block_sparse_moe.experts.{}.w3.weight", expert));
}

TEST(Locate, a_gradient_is_named_with_the_backward_pass) {
  for (const int stage : {0, 3})
    // The walk back meets the last norm first.
    EXPECT_THAT(messages_of(poisoned(on(sharded(kRanks, stage)), "RmsNormBackward", "d_weight")),
                Each(AllOf(HasSubstr("backward, RmsNormBackward: d_weight [24] f32 holds 1 inf"),
                           HasSubstr("first found at rank 1: "))));
}

TEST(Locate, a_parameter_is_named_before_anything_that_it_spoils) {
  for (const int stage : {0, 3})
    expect_names_parameter(on(sharded(kRanks, stage)), "model.layers.1.mlp.up_proj.weight");
}

TEST(Locate, skipping_leaves_the_weights_and_the_count_of_updates_as_they_were) {
  bool poisoning = true;
  TrainingCase each = on(sharded(kRanks, 2));
  each.on_nonfinite = OnNonfinite::skip;
  each.watcher = [&](std::string_view op, std::string_view, const Tensor& values) {
    if (poisoning && op == "Attention") values.data<float>()[0] = std::numeric_limits<float>::quiet_NaN();
  };
  each.on_ranks([&](TrainingRank& rank) {
    const test::WholeTensors before = rank.weights();
    const StepResult bad = rank.step(0);
    EXPECT_TRUE(bad.skipped);
    EXPECT_THAT(bad.nonfinite, HasSubstr("rank 0: block.0.attention, forward, Attention: out"));
    EXPECT_EQ(rank.weights(), before);
    EXPECT_EQ(rank.model.optimizer().updates(), 0);
    EXPECT_EQ(rank.engine.skipped(), 1);
    if (rank.is_first()) poisoning = false;
    const StepResult good = rank.step(0);
    EXPECT_FALSE(good.skipped);
    EXPECT_TRUE(good.nonfinite.empty());
    EXPECT_NE(rank.weights(), before);
    EXPECT_EQ(rank.model.optimizer().updates(), 1);
  });
}

}  // namespace
}  // namespace nought::locate_test
