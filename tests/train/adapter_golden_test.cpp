// What peft computes with its adapters, of tests/golden/lora: logits, loss, and gradients of what is trained and of
// nothing else, at every ZeRO stage and on ranks that share matrices, sequences and layers; and merged weights.
#include "support/golden.h"
#include "support/golden_output.h"
#include "support/training_case.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/engine/model_schedule.h"
#include "nought/weights/model_source.h"

namespace nought::adapter_golden_test {
namespace {

namespace fs = std::filesystem;
using test::MeshLayout;
using test::TrainingRank;

class AdapterGolden : public ::testing::TestWithParam<const char*> {
 protected:
  FoundModel found() const { return find_model(folder_ / "adapter"); }
  test::TrainingCase on(const MeshLayout& mesh, Recompute recompute = Recompute::none) const {
    return {.model = ModelSource(found()).config(),
            .mesh = mesh,
            .recompute = recompute,
            .load = [found = found()](ShardedModel& model, Decoder&) { model.load(ModelSource(found).weights()); }};
  }
  void expect_golden_on(const MeshLayout& mesh, Recompute recompute = Recompute::none) const {
    const test::TrainingCase each = on(mesh, recompute);
    SCOPED_TRACE(each.str());
    ProbeOutput output;
    const int64_t micro_batches = mesh.sizes.pipeline > 1 ? 2 : 1;
    each.on_ranks([&](TrainingRank& rank) {
      const ProbeInput input = read_probe_input(rank.context, golden(), rank.decoder.config().vocab_size);
      ProbeOutput own = probe(rank.model, rank.decoder, input, true,
                              {.micro_batches = micro_batches, .schedule = schedule_at(rank.mesh, mesh.pipeline())});
      if (rank.is_first()) output = std::move(own);
    });
    EXPECT_EQ(output.size(), count_results()) << "no gradient elsewhere";
    test::expect_golden(output, golden());
  }
  std::string golden() const { return (folder_ / "golden.safetensors").string(); }
  /// What a probe gives: all but ids, labels and merged weights.
  size_t count_results() const {
    const SafetensorsFile file(golden());
    return static_cast<size_t>(std::ranges::count_if(file.entries(), [](const TensorEntry& entry) {
      return entry.name == "logits" || entry.name == "loss" || entry.name.starts_with("grad.");
    }));
  }
  const fs::path folder_ = test::golden_folder(GetParam());
};

TEST_P(AdapterGolden, one_rank_computes_it_with_and_without_recomputation) {
  for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full})
    expect_golden_on({}, recompute);
}

TEST_P(AdapterGolden, every_stage_computes_it) {
  for (const int stage : {0, 1, 2, 3}) expect_golden_on(test::sharded(2, stage));
}

TEST_P(AdapterGolden, ranks_that_share_matrices_sequences_and_layers_compute_it) {
  expect_golden_on({.sizes = {.tensor = 2}});
  expect_golden_on({.sizes = {.shard = 2, .tensor = 2}, .sequence_parallel = true, .stage = 3}, Recompute::selective);
  expect_golden_on({.sizes = {.context = 2}});
  expect_golden_on({.sizes = {.pipeline = 2}});
  expect_golden_on({.sizes = {.pipeline = 2}, .schedule = PipelineSchedule::zbh1});
}

TEST_P(AdapterGolden, left_out_it_is_its_base_to_the_bit) {
  if (!read_adapter_config(folder_ / "adapter").can_be_left_out()) return;  // its file has trained copies of weights
  const auto logits_of = [&](const test::TrainingCase& of, bool leaves_out) {
    return of.on_rank(0, [&](TrainingRank& rank) {
      const ProbeInput input = read_probe_input(rank.context, golden(), rank.decoder.config().vocab_size);
      rank.decoder.leave_out_adapter(leaves_out);
      ProbeOutput output = probe(rank.model, rank.decoder, input, false, {});
      return output.empty() ? std::vector<float>() : output[output.size() - 2].second.to_vector<float>();
    });
  };
  for (const MeshLayout& mesh : {MeshLayout{}, MeshLayout{.sizes = {.tensor = 2}}}) {
    const FoundModel base{folder_ / "base"};
    const test::TrainingCase without{
        .model = ModelSource(base).config(), .mesh = mesh, .load = [&](ShardedModel& model, Decoder&) {
          model.load(ModelSource(base).weights());
        }};
    EXPECT_EQ(logits_of(on(mesh), true), logits_of(without, false));
    EXPECT_NE(logits_of(on(mesh), false), logits_of(without, false));
  }
}

TEST_P(AdapterGolden, merged_weights_are_pefts) {
  const ModelSource merged(found(), AdaptersAre::merged), base(FoundModel{folder_ / "base"});
  EXPECT_TRUE(merged.config().adapter.empty());
  const SafetensorsFile file(golden());
  const auto memory = Memory::create();
  const auto values_of = [&](const ModelSource& source, const Parameter& parameter) {
    Tensor values = Tensor::empty(*memory, parameter.placement.global, DType::f32, Category::parameters);
    source.weights().fill(StateKind::master, parameter, Interval{0, values.numel()}, values);
    return values;
  };
  size_t changed = 0;
  for (const auto& unit : merged.model().units())
    for (const Parameter& parameter : unit->parameters()) {
      const Tensor values = values_of(merged, parameter);
      const std::string name = "merged." + parameter.name;
      const bool changes = file.find(name) != nullptr;
      const Tensor expected = changes ? file.load(name, *memory) : values_of(base, parameter);
      EXPECT_LE(test::difference(values, expected).max_abs, changes ? 1e-6 : 0) << name;
      changed += changes ? 1 : 0;
    }
  EXPECT_EQ(changed, static_cast<size_t>(std::ranges::count_if(
                         file.entries(), [](const TensorEntry& entry) { return entry.name.starts_with("merged."); })));
}

/// In pieces of any size.
TEST_P(AdapterGolden, merged_weights_do_not_depend_on_how_they_are_read) {
  const ModelSource merged(found(), AdaptersAre::merged);
  const auto memory = Memory::create();
  for (const auto& unit : merged.model().units())
    for (const Parameter& parameter : unit->parameters()) {
      const int64_t numel = parameter.placement.global.numel();
      const Tensor whole = Tensor::empty(*memory, {numel}, DType::f32, Category::parameters);
      const Tensor pieces = Tensor::empty(*memory, {numel}, DType::f32, Category::parameters);
      merged.weights().fill(StateKind::master, parameter, Interval{0, numel}, whole);
      for (int64_t begin = 0; begin < numel; begin += 77) {
        const Interval piece{begin, std::min(numel, begin + 77)};
        merged.weights().fill(StateKind::master, parameter, piece, pieces.flat(piece.begin, piece.end));
      }
      EXPECT_EQ(whole.to_vector<float>(), pieces.to_vector<float>()) << parameter.name;
    }
}

INSTANTIATE_TEST_SUITE_P(Adapters, AdapterGolden,
                         ::testing::Values("lora/llama", "lora/gpt2", "lora/experts", "lora/embedding", "lora/dora",
                                           "lora/dora_gpt2", "lora/bias", "lora/tied", "lora/tied_table", "lora/fused",
                                           "lora/mixtral_all", "lora/gpt_oss_experts", "lora/llama4_experts",
                                           "lora/head", "lora/tokens", "lora/tokens_tied", "lora/tokens_head",
                                           "lora/tokens_gemma", "lora/tie_save"),
                         test::name_of_folder<const char*>);

}  // namespace
}  // namespace nought::adapter_golden_test
