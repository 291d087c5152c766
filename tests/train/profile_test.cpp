// A profile counts every operation of a step once, in its pass and its module; what is counted is what the formula
// says.
#include "nought/diagnose/profile.h"

#include <chrono>

#include "support/training_case.h"
#include <gtest/gtest.h>

#include "nought/models/flops.h"

namespace nought::profile_test {
namespace {

using test::TrainingCase;
using test::TrainingRank;

constexpr int64_t kRows = 2, kLength = 16, kLayers = 3;

ModelConfig tiny() {
  return test::small_model("grouped_heads", kLayers, {{"hidden_size", 32}, {"intermediate_size", 48}});
}

struct Profiled {
  StepProfile profile;
  double loss = 0, grad_norm = 0;
};

/// The second of two steps of two micro-batches, of rank 0.
Profiled profile_of_a_step(int ranks, Recompute recompute, bool recorded = true) {
  TrainingCase each = test::learning(tiny(), test::sharded(ranks, 3));
  each.rows.of_step = 2 * kRows * ranks, each.rows.length = kLength;
  each.accumulation = 2, each.recompute = recompute;
  each.timed = true;
  return each.on_rank(0, [&](TrainingRank& rank) {
    const std::vector<Batch> batches = rank.batches(1);
    rank.step(0);
    rank.model.settle();
    if (recorded) rank.world.record(rank.timeline), rank.timeline->start();
    const auto begin = TraceEvent::Clock::now();
    const StepResult step = rank.engine.step(batches, rank.targets(1), each.lr, each.clipping);
    Profiled result{{}, step.loss, step.grad_norm};
    result.profile.seconds = std::chrono::duration<double>(TraceEvent::Clock::now() - begin).count();
    add_events(rank.timeline->take(), result.profile);
    return result;
  });
}

double flops_of(const StepProfile& profile) {
  double flops = 0;
  for (const auto& [name, total] : profile.operations) flops += total.work.flops;
  return flops;
}

/// Parameters of norms, which multiply no matrix; the formula does not tell them apart.
int64_t norm_parameters(const ModelConfig& config) { return (2 * config.num_layers + 1) * config.hidden_size; }

TEST(Profile, counts_the_flops_of_the_formula_and_what_is_computed_again) {
  const ModelConfig config = tiny();
  const int64_t tokens = 2 * kRows * kLength;
  const double attended = static_cast<double>(config.num_layers * config.num_heads * config.head_dim * kLength);
  // 6 Psi + 6 L h s, and the scores once more in attention's backward pass.
  const double plain =
      training_flops_per_token(config, kLength) - 6 * static_cast<double>(norm_parameters(config)) + attended;
  EXPECT_DOUBLE_EQ(flops_of(profile_of_a_step(1, Recompute::none).profile), static_cast<double>(tokens) * plain);
  EXPECT_DOUBLE_EQ(flops_of(profile_of_a_step(2, Recompute::none).profile), static_cast<double>(tokens) * plain);
  // The forward pass of the blocks again: 2 Psi and 2 L h s.
  const auto blocks = static_cast<double>(config.parameter_count() - norm_parameters(config) -
                                          2 * config.vocab_size * config.hidden_size);
  EXPECT_DOUBLE_EQ(flops_of(profile_of_a_step(1, Recompute::full).profile),
                   static_cast<double>(tokens) * (plain + 2 * blocks + 2 * attended));
}

TEST(Profile, passes_and_modules_add_up_to_the_operations_and_take_no_longer_than_the_step) {
  for (const Recompute mode : {Recompute::none, Recompute::selective, Recompute::full}) {
    const StepProfile profile = profile_of_a_step(2, mode).profile;
    OperationTotal all, passes = profile.optimizer;
    for (const auto& [name, total] : profile.operations) all += total;
    passes += profile.model.forward, passes += profile.model.backward;
    EXPECT_EQ(passes.runs, all.runs);
    EXPECT_NEAR(passes.seconds, all.seconds, 1e-9);
    EXPECT_DOUBLE_EQ(passes.work.flops, all.work.flops);
    EXPECT_LE(all.seconds, profile.seconds);
    EXPECT_LE(profile.model.forward.seconds, profile.times.forward);
    EXPECT_LE(profile.model.backward.seconds, profile.times.backward);
    EXPECT_LE(profile.optimizer.seconds, profile.times.optimizer);
    EXPECT_GT(profile.optimizer.runs, 0);

    // Every product of the model belongs to a part of a Unit.
    double flops = 0;
    for (const ModuleProfile& unit : profile.model.inside)
      for (const ModuleProfile& part : unit.inside) flops += part.flops();
    EXPECT_DOUBLE_EQ(flops, profile.model.flops());
  }
}

TEST(Profile, modules_are_those_of_the_model_in_their_order_and_each_works_in_both_passes) {
  const StepProfile profile = profile_of_a_step(1, Recompute::none).profile;
  std::vector<std::string> units, parts;
  for (const ModuleProfile& unit : profile.model.inside) units.push_back(unit.name);
  EXPECT_EQ(units, (std::vector<std::string>{"embedding", "block.0", "block.1", "block.2", "head"}));
  for (const ModuleProfile& part : profile.model.inside.at(1).inside) {
    parts.push_back(part.name);
    EXPECT_GT(part.forward.runs, 0) << part.name;
    EXPECT_GT(part.backward.runs, 0) << part.name;
  }
  EXPECT_EQ(parts, (std::vector<std::string>{"attention_norm", "attention", "mlp_norm", "mlp"}));
  const ModuleProfile &attention = profile.model.inside.at(1).inside.at(1), &mlp = profile.model.inside.at(1).inside[3];
  EXPECT_DOUBLE_EQ(mlp.backward.work.flops, 2 * mlp.forward.work.flops);
  EXPECT_DOUBLE_EQ(mlp.forward.work.flops, 2.0 * 2 * kRows * kLength * 3 * 32 * 48);
  EXPECT_GT(attention.backward.work.flops, 2 * attention.forward.work.flops) << "scores are computed again";
}

TEST(Profile, a_recomputed_block_works_more_on_the_way_back_and_as_much_forward) {
  const StepProfile plain = profile_of_a_step(1, Recompute::none).profile,
                    full = profile_of_a_step(1, Recompute::full).profile;
  for (size_t unit = 0; unit < plain.model.inside.size(); ++unit) {
    const ModuleProfile &a = plain.model.inside[unit], &b = full.model.inside.at(unit);
    EXPECT_EQ(a.name, b.name);
    EXPECT_EQ(a.forward.work.flops, b.forward.work.flops);
    const bool block = a.name.starts_with("block");
    EXPECT_DOUBLE_EQ(b.backward.work.flops, a.backward.work.flops + (block ? a.forward.work.flops : 0)) << a.name;
  }
}

TEST(Profile, changes_no_bits) {
  for (const int ranks : {1, 2}) {
    const Profiled with = profile_of_a_step(ranks, Recompute::full),
                   without = profile_of_a_step(ranks, Recompute::full, /*recorded=*/false);
    EXPECT_TRUE(without.profile.operations.empty());
    EXPECT_EQ(with.loss, without.loss);
    EXPECT_EQ(with.grad_norm, without.grad_norm);
  }
}

TEST(Profile, an_operation_belongs_to_what_it_lies_in) {
  const auto event = [](TraceEventKind kind, const std::string& name, int begin, int end, double flops = 0) {
    const TraceEvent::Clock::time_point start{};
    return TraceEvent{kind, name, start + std::chrono::seconds(begin), start + std::chrono::seconds(end), 0, flops};
  };
  using enum TraceEventKind;
  // In the order in which they end, as a timeline has them.
  const std::vector<TraceEvent> events{event(operation, "Add", 0, 1),
                                       event(operation, "MatMul", 3, 5, 10),
                                       event(part, "inner", 3, 5),
                                       event(operation, "MatMul", 5, 6, 1),
                                       event(collective, "all_gather", 0, 7),
                                       event(part, "outer", 3, 6),
                                       event(unit, "block.0, forward", 2, 6),
                                       event(operation, "Scale", 6, 7),
                                       event(phase, "forward", 2, 7),
                                       event(operation, "MatMul", 7, 9, 20),
                                       event(wait, "wait", 9, 10),
                                       event(unit, "block.0, backward", 7, 10),
                                       event(phase, "backward", 7, 10),
                                       event(operation, "Adam", 10, 11),
                                       event(phase, "optimizer", 10, 12)};
  StepProfile profile;
  add_events(events, profile);
  EXPECT_EQ(profile.operations.at("MatMul").runs, 3);
  EXPECT_EQ(profile.operations.at("MatMul").seconds, 5);
  EXPECT_EQ(profile.model.forward.runs, 3) << "what lies before the pass does not belong to it";
  EXPECT_EQ(profile.model.backward.work.flops, 20);
  EXPECT_EQ(profile.optimizer.runs, 1);
  ASSERT_EQ(profile.model.inside.size(), 1u);
  const ModuleProfile& block = profile.model.inside[0];
  EXPECT_EQ(block.name, "block.0");
  EXPECT_EQ(block.forward.work.flops, 11);
  EXPECT_EQ(block.backward.work.flops, 20);
  ASSERT_EQ(block.inside.size(), 1u);
  EXPECT_EQ(block.inside[0].name, "outer");
  EXPECT_EQ(block.inside[0].forward.seconds, 3);
  ASSERT_EQ(block.inside[0].inside.size(), 1u);
  EXPECT_EQ(block.inside[0].inside[0].forward.work.flops, 10);
}

}  // namespace
}  // namespace nought::profile_test
