// The losses of proximal policy optimization and their gradients, of tests/golden/align/ppo_models, on every layout;
// and of numbers, of tests/golden/align/ppo, as `nought probe` gives them.
#include "support/golden.h"
#include "support/training_case.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/engine/model_schedule.h"
#include "nought/train/probe_ppo.h"
#include "nought/weights/model_source.h"

namespace nought::ppo_golden_test {
namespace {

using test::MeshLayout;
using test::TrainingRank;

FoundModel folder(const std::string& name) { return {.folder = test::golden_folder("align/" + name)}; }
std::string golden() { return test::golden_folder("align/ppo_models") + "/golden.safetensors"; }

/// With the options of make_ppo.py, on such ranks.
RunPlan plan_on(const MeshLayout& mesh) {
  RunPlan plan;
  AlignmentPlan& alignment = plan.alignment;
  alignment.method = AlignmentMethod::ppo, alignment.generations = 1;
  alignment.policy_loss.max_completion_length = 6, alignment.policy_loss.temperature = 0.7;
  alignment.ppo.emplace();
  alignment.ppo->options = {.kl_coef = 0.07, .gamma = 0.97, .lam = 0.9, .value_coef = 0.3};
  alignment.ppo->value_model = test::golden_folder("align/reward/model");
  plan.layout.ranks = mesh.ranks();
  plan.layout.tensor_ranks = static_cast<int>(mesh.sizes.tensor);
  plan.layout.context_ranks = static_cast<int>(mesh.sizes.context);
  plan.layout.pipeline = mesh.pipeline(), plan.layout.zero_stage = mesh.stage;
  return plan;
}

void expect_golden_on(const MeshLayout& mesh) {
  const test::TrainingCase of{
      .model = ModelSource(folder("policy")).config(), .mesh = mesh, .load = [](ShardedModel& model, Decoder&) {
        model.load(ModelSource(folder("policy")).weights());
      }};
  SCOPED_TRACE(of.str());
  const RunPlan plan = plan_on(mesh);
  const ProbeOutput output = of.on_rank(0, [&](TrainingRank& rank) {
    ValueModel values(plan, probe_sharding(plan, true), rank.mesh, rank.context);
    values.load_start();
    const AskReference ask = [&](const MakeBatches& batches, std::span<const int64_t> lengths) {
      const ModelSource source(folder("reference"));
      Decoder decoder(source.config(), {}, {}, ModelRanks(rank.mesh, false, mesh.cut()));
      ShardedModel model(rank.context, rank.mesh, decoder, probe_sharding(plan, false));
      model.load(source.weights());
      Engine engine(model);
      engine.set_schedule(schedule_at(rank.mesh, mesh.pipeline()));
      return token_logs(engine, model, decoder, batches, lengths, plan.alignment.policy_loss.temperature);
    };
    return probe_ppo(
        rank.model, rank.decoder, values, read_ppo_input(rank.context, golden(), 41, plan.alignment), plan.alignment,
        true, {.micro_batches = mesh.sizes.pipeline > 1 ? 2 : 1, .schedule = schedule_at(rank.mesh, mesh.pipeline())},
        ask);
  });
  const Context context = Context::reference();
  const SafetensorsFile expected(golden());
  size_t compared = 0, wanted = 0;
  for (const auto& [name, tensor] : output) {
    if (expected.find("want." + name) == nullptr) continue;
    const Tensor want = expected.load("want." + name, *context.memory);
    ++compared;
    if (name.find("grad.") != std::string::npos) {
      test::expect_gradient_close(name, tensor, want, 5e-5);
    } else {
      EXPECT_LE(test::difference(tensor, want).max_abs, 5e-6) << name;
    }
  }
  for (const TensorEntry& entry : expected.entries()) wanted += entry.name.starts_with("want.") ? 1 : 0;
  EXPECT_EQ(compared, wanted);
}

TEST(PpoGolden, every_layout_computes_the_losses_and_gradients_of_both_models) {
  std::vector<MeshLayout> meshes{{}};
  for (const int stage : {0, 1, 2, 3}) meshes.push_back(test::sharded(2, stage));
  meshes.push_back({.sizes = {.pipeline = 2}});
  meshes.push_back({.sizes = {.context = 2}});
  for (const MeshLayout& mesh : meshes) expect_golden_on(mesh);
}

TEST(PpoGolden, numbers_alone_have_their_losses_and_gradients) {
  const std::string path = test::golden_folder("align/ppo") + "/golden.safetensors";
  ASSERT_TRUE(holds_ppo_numbers(path));
  EXPECT_FALSE(holds_ppo_numbers(golden()));
  const Context context = Context::reference();
  const SafetensorsFile expected(path);
  AlignmentPlan plan = plan_on({}).alignment;
  for (const KlEstimator estimator : {KlEstimator::k1, KlEstimator::k3}) {
    plan.ppo->options = {.kl_estimator = estimator, .gamma = 0.98};
    size_t compared = 0;
    for (const auto& [name, tensor] : probe_ppo_numbers(context, path, plan)) {
      const std::string wanted = std::string(enum_name(estimator)) + "." + name;
      if (expected.find(wanted) == nullptr) continue;
      EXPECT_LE(test::difference(tensor, expected.load(wanted, *context.memory)).max_abs, 5e-6) << wanted;
      ++compared;
    }
    EXPECT_EQ(compared, 7U);
  }
}

}  // namespace
}  // namespace nought::ppo_golden_test
