// TRL's generalised Jensen-Shannon divergences and their gradients, of tests/golden/align/distil, on every layout.
#include "support/golden.h"
#include "support/training_case.h"
#include <gtest/gtest.h>

#include "nought/engine/model_schedule.h"
#include "nought/io/safetensors.h"
#include "nought/train/probe.h"
#include "nought/train/teacher.h"
#include "nought/weights/model_source.h"

namespace nought::distil_golden_test {
namespace {

using test::MeshLayout;
using test::TrainingRank;

FoundModel student() { return {.folder = test::golden_folder("align/policy")}; }

/// loss.KIND, and the gradients of "jsd".
void expect_golden_divergence(const MeshLayout& mesh, const std::string& kind, double beta) {
  SCOPED_TRACE(kind);
  const test::TrainingCase of{
      .model = ModelSource(student()).config(), .mesh = mesh, .load = [](ShardedModel& model, Decoder&) {
        model.load(ModelSource(student()).weights());
      }};
  const std::string golden = test::golden_folder("align/distil") + "/golden.safetensors";
  const ProbeOutput output = of.on_rank(0, [&](TrainingRank& rank) {
    RunPlan plan;
    plan.alignment.method = AlignmentMethod::gkd, plan.alignment.distillation.emplace();
    plan.alignment.teacher_model = test::golden_folder("align/reference");
    plan.alignment.policy_loss.temperature = 0.9;
    plan.layout.ranks = mesh.ranks(), plan.layout.pipeline = mesh.pipeline();
    plan.layout.sharding = rank.model.options(), plan.layout.zero_stage = mesh.stage;
    Teacher teacher(plan, rank.mesh, rank.context);
    rank.decoder.set_objective(teacher.objective(beta));
    return probe(rank.model, rank.decoder, read_probe_input(rank.context, golden, rank.decoder.config().vocab_size),
                 true,
                 {.micro_batches = mesh.sizes.pipeline > 1 ? 2 : 1,
                  .schedule = schedule_at(rank.mesh, mesh.pipeline()),
                  .prepare = [&](std::span<Batch> batches) { teacher.ask(batches); }});
  });
  const Context context = Context::reference();
  const SafetensorsFile expected(golden);
  size_t gradients = 0, stored = 0;
  for (const auto& [name, tensor] : output) {
    if (name == "loss") {
      EXPECT_LE(test::difference(tensor, expected.load("loss." + kind, *context.memory)).max_abs, 5e-6);
    } else if (name.starts_with("grad.") && kind == "jsd") {
      ++gradients;
      test::expect_gradient_close(name, tensor, expected.load("jsd." + name, *context.memory), 5e-5);
    }
  }
  for (const TensorEntry& entry : expected.entries()) stored += entry.name.starts_with(kind + ".grad.") ? 1 : 0;
  EXPECT_EQ(gradients, stored);
}

TEST(DistilGolden, one_rank_computes_each_divergence) {
  expect_golden_divergence({}, "forward", 0);
  expect_golden_divergence({}, "jsd", 0.5);
  expect_golden_divergence({}, "reverse", 1);
}

TEST(DistilGolden, every_layout_computes_them) {
  for (const int stage : {0, 1, 2, 3}) expect_golden_divergence(test::sharded(2, stage), "jsd", 0.5);
  MeshLayout stages;
  stages.sizes.pipeline = 2;
  expect_golden_divergence(stages, "jsd", 0.5);
}

}  // namespace
}  // namespace nought::distil_golden_test
