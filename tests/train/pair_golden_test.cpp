// What TRL computes of pairs of answers, of tests/golden/align: log-probabilities, losses, and gradients, at every ZeRO
// stage and on ranks that share matrices, sequences and layers.
#include "support/golden.h"
#include "support/message_of.h"
#include "support/training_case.h"
#include <gtest/gtest.h>

#include "nought/config/alignment_plan.h"
#include "nought/engine/model_schedule.h"
#include "nought/engine/sequence_pass.h"
#include "nought/train/probe_pairs.h"
#include "nought/weights/model_source.h"

namespace nought::pair_golden_test {
namespace {

using test::MeshLayout;
using test::TrainingRank;

/// A loss by its name in the golden files.
AlignmentPlan plan_of(const std::string& kind) {
  AlignmentPlan plan{.method = AlignmentMethod::dpo};
  if (kind == "sigmoid_ld") {
    plan.ld_alpha = 0.5;
    return plan;
  }
  if (kind == "kto") {
    plan.method = AlignmentMethod::kto, plan.label_loss.undesirable_weight = 0.75;
    return plan;
  }
  if (kind == "orpo") {
    plan.method = AlignmentMethod::orpo, plan.likelihood = 1, plan.likelihood_of_prompts = true;
    plan.loss.terms = {{PairLossType::odds_ratio, 1}};
    return plan;
  }
  for (const auto& [type, name] : EnumNames<PairLossType>::value)
    if (name == kind) plan.loss.terms = {{type, 1}};
  if (kind == "sft") plan.likelihood = 1;
  if (kind == "simpo") plan.method = AlignmentMethod::cpo;
  plan.loss.label_smoothing = kind == "robust" ? 0.1 : 0;
  return plan;
}

test::TrainingCase case_of(const FoundModel& found, const MeshLayout& mesh) {
  return {.model = ModelSource(found).config(), .mesh = mesh, .load = [found](ShardedModel& model, Decoder&) {
            model.load(ModelSource(found).weights());
          }};
}

FoundModel policy() { return {.folder = test::golden_folder("align/policy")}; }
FoundModel reference() { return {.folder = test::golden_folder("align/reference")}; }

struct Pairs {
  std::string folder = "align/dpo";
  FoundModel trained = policy(), beside = reference();

  std::string golden() const { return test::golden_folder(folder) + "/golden.safetensors"; }
  /// What the reference says of them on a mesh.
  SequenceSums reference_on(const MeshLayout& mesh, const std::string& kind) const {
    return case_of(beside, mesh).on_rank(0, [&](TrainingRank& rank) {
      const PairInput input =
          read_pair_input(rank.context, golden(), rank.decoder.config().vocab_size, folder == "align/kto");
      const auto batches =
          pair_batches(*rank.context.memory, input, plan_of(kind), {}, rank.mesh.group(Group::samples), 2);
      rank.engine.set_schedule(schedule_at(rank.mesh, mesh.pipeline()));
      return sequence_sums(rank.engine, rank.model, rank.decoder, batches, std::ssize(input.ids));
    });
  }
  ProbeOutput probed_on(const MeshLayout& mesh, const AlignmentPlan& plan, const SequenceSums& sums) const {
    return case_of(trained, mesh).on_rank(0, [&](TrainingRank& rank) {
      const PairInput input =
          read_pair_input(rank.context, golden(), rank.decoder.config().vocab_size, folder == "align/kto");
      const int64_t micro_batches = mesh.sizes.pipeline > 1 ? 2 : 1;
      return probe_pairs(rank.model, rank.decoder, input, plan,
                         plan.has_reference() ? std::span<const double>(sums) : std::span<const double>(), true,
                         {.micro_batches = micro_batches, .schedule = schedule_at(rank.mesh, mesh.pipeline())});
    });
  }
  void expect_golden_on(const MeshLayout& mesh, const std::string& kind) const {
    SCOPED_TRACE(kind + " on " + case_of(trained, mesh).str());
    const Context context = Context::reference();
    const SafetensorsFile expected(golden());
    size_t gradients = 0;
    const AlignmentPlan plan = plan_of(kind);
    const ProbeOutput output = probed_on(mesh, plan, plan.has_reference() ? reference_on(mesh, kind) : SequenceSums());
    for (const auto& [name, tensor] : output) {
      const bool is_gradient = name.starts_with("grad.");
      // Log-probabilities of the file are plain sums.
      if (name.ends_with("_logps") && kind == "sigmoid_ld") continue;
      const std::string wanted = is_gradient ? kind + "." + name : name == "loss" ? "loss." + kind : name;
      if (is_gradient && expected.find(wanted) == nullptr) continue;
      const Tensor want = expected.load(wanted, *context.memory);
      if (is_gradient) {
        ++gradients, test::expect_gradient_close(name, tensor, want, 5e-5);
      } else {
        EXPECT_LE(test::difference(tensor, want).max_abs, name == "loss" ? 5e-6 : 5e-5) << name;
      }
    }
    size_t stored = 0;
    for (const TensorEntry& entry : expected.entries()) stored += entry.name.starts_with(kind + ".grad.") ? 1 : 0;
    EXPECT_EQ(gradients, stored);
  }
};

TEST(PairGolden, one_rank_computes_each_loss) {
  const Pairs pairs;
  for (const char* kind : {"sigmoid", "hinge", "ipo", "robust", "sigmoid_norm", "apo_zero", "nca_pair", "sppo_hard",
                           "sigmoid_ld", "sft", "orpo", "simpo"})
    pairs.expect_golden_on({}, kind);
}

TEST(PairGolden, answers_with_labels_have_trls_loss_on_every_layout) {
  const Pairs answers{.folder = "align/kto"};
  answers.expect_golden_on({}, "kto");
  answers.expect_golden_on(test::sharded(2, 3), "kto");
  answers.expect_golden_on({.sizes = {.context = 2}}, "kto");
  answers.expect_golden_on({.sizes = {.pipeline = 2}}, "kto");
}

TEST(PairGolden, every_layout_computes_them) {
  const Pairs pairs;
  std::vector<MeshLayout> meshes;
  for (const int stage : {0, 1, 2, 3}) meshes.push_back(test::sharded(2, stage));
  meshes.push_back({.sizes = {.context = 2}});
  meshes.push_back({.sizes = {.pipeline = 2}});
  meshes.push_back({.sizes = {.pipeline = 2}, .schedule = PipelineSchedule::zbh1});
  for (const MeshLayout& mesh : meshes)
    for (const char* kind : {"sigmoid", "sigmoid_ld", "orpo"}) pairs.expect_golden_on(mesh, kind);
}

TEST(PairGolden, the_reference_of_an_adapter_is_its_base) {
  const Pairs pairs{
      .folder = "align/dpo_lora",
      .trained = find_model(test::golden_folder("align/dpo_lora/adapter"), test::golden_folder("align/policy")),
      .beside = policy()};
  for (const MeshLayout& mesh : {MeshLayout(), test::sharded(2, 3), MeshLayout{.sizes = {.context = 2}}})
    pairs.expect_golden_on(mesh, "sigmoid");
}

/// The golden models have three heads, which two ranks cannot share.
TEST(PairGolden, ranks_that_share_matrices_compute_what_one_computes) {
  const auto on = [](const MeshLayout& mesh, const std::string& kind) {
    return test::TrainingCase{.mesh = mesh}.on_rank(0, [&](TrainingRank& rank) {
      const PairInput input = read_pair_input(rank.context, Pairs().golden(), rank.decoder.config().vocab_size);
      return probe_pairs(rank.model, rank.decoder, input, plan_of(kind), {}, true, {});
    });
  };
  for (const char* kind : {"sigmoid_ld", "orpo"}) {
    const ProbeOutput alone = on({}, kind);
    for (const MeshLayout& mesh :
         {MeshLayout{.sizes = {.tensor = 2}},
          MeshLayout{.sizes = {.shard = 2, .tensor = 2}, .sequence_parallel = true, .stage = 3}}) {
      const ProbeOutput shared = on(mesh, kind);
      ASSERT_EQ(shared.size(), alone.size());
      for (size_t i = 0; i < alone.size(); ++i) {
        EXPECT_EQ(shared[i].first, alone[i].first);
        if (shared[i].first.starts_with("grad.")) {
          test::expect_gradient_close(shared[i].first, shared[i].second, alone[i].second, 5e-5);
        } else {
          EXPECT_LE(test::difference(shared[i].second, alone[i].second).max_abs, 2e-5) << shared[i].first << kind;
        }
      }
    }
  }
}

TEST(PairGolden, tiles_of_the_vocabulary_are_refused) {
  const std::string message = test::message_of<ConfigError>([] {
    const Pairs pairs;
    test::TrainingCase each = case_of(policy(), test::sharded(1, 3));
    each.recompute.unit_tiles = 2;
    each.on_ranks([&](TrainingRank& rank) {
      const PairInput input = read_pair_input(rank.context, pairs.golden(), rank.decoder.config().vocab_size);
      probe_pairs(rank.model, rank.decoder, input, plan_of("orpo"), {}, true, {});
    });
  });
  EXPECT_NE(message.find("memory_centric_tiling"), std::string::npos) << message;
}

}  // namespace
}  // namespace nought::pair_golden_test
