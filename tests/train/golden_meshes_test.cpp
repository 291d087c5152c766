// Ranks that share matrices, heads, the vocabulary, experts, sequences and layers compute what Hugging Face computes:
// one family for each structure (NOUGHT_LONG: all of them) on every kind of mesh.
#include <numeric>

#include "support/balance.h"
#include "support/golden_case.h"
#include "support/sweep.h"

#include "nought/models/stages.h"
#include "nought/models/tensor_cuts.h"
#include "nought/zero/micro_batch.h"

namespace nought::golden_meshes_test {
namespace {

using test::family_of;
using test::GoldenCase;
using test::MeshLayout;
using test::TrainingRank;

/// Families are parameters.
class GoldenFamily : public ::testing::TestWithParam<const char*> {
 protected:
  GoldenCase on(const MeshLayout& mesh, Recompute recompute = Recompute::none) const {
    return {.folder = folder_, .mesh = mesh, .recompute = recompute};
  }
  /// Probes on each second mesh (NOUGHT_LONG: on each), of which families that are neighbours have one and the other
  /// half; with the loss that balances experts too, where the family has it.
  void expect_on(const std::vector<MeshLayout>& meshes) const {
    const auto families = test::mesh_families();
    int64_t turn = std::ranges::find(families, std::string_view(GetParam())) - families.begin();
    for (const MeshLayout& mesh : meshes) {
      if (!test::samples(turn++, 2)) continue;
      GoldenCase each = on(mesh, mesh.sizes.context == 4 ? Recompute::full : Recompute::none);
      each.expect_golden();
      if (!balances_) continue;
      each.balanced = true;
      each.expect_golden();
    }
  }
  const std::string folder_ = test::golden_folder(GetParam());
  const ModelConfig config_ = ModelConfig::from_folder(folder_);
  const bool balances_ = std::ranges::count(test::kAuxiliaryFamilies, std::string_view(GetParam())) > 0;
};

class GoldenMeshes : public GoldenFamily {};

const std::vector<MeshLayout> kSharingMatrices{{.sizes = {.tensor = 2}},
                                               {.sizes = {.tensor = 4}},
                                               {.sizes = {.shard = 2, .tensor = 2}, .stage = 3},
                                               {.sizes = {.tensor = 2}, .sequence_parallel = true},
                                               {.sizes = {.tensor = 4}, .sequence_parallel = true}};

TEST_P(GoldenMeshes, ranks_that_share_matrices_agree_at_every_size) {
  EXPECT_EQ(reason_not_to_cut(config_, 2) + reason_not_to_cut(config_, 4), "");
  expect_on(kSharingMatrices);
}

/// Ranks that share heads each cache the keys and values of their own.
TEST_P(GoldenMeshes, logits_with_a_cache_of_shared_heads_equal_those_without) {
  for (const MeshLayout& mesh : kSharingMatrices)
    on(mesh).on_ranks([](TrainingRank& rank, const ProbeInput& input) {
      const Tensor ids = probe_rows(rank.context, input, 0, 1).input_ids.slice(0, 1);  // [1, length]
      test::expect_cached_logits(rank, ids, {ids.dim(1) - 3, 1, 1, 1});
    });
}

/// Every method on 2 and on 4 ranks, beside samples and beside shared matrices. The rows have 37 tokens, or less.
TEST_P(GoldenMeshes, ranks_that_share_sequences_agree_by_every_method) {
  std::vector<MeshLayout> meshes;
  for (const ContextMethod method : test::kContextMethods)
    for (const GridSizes& sizes :
         {GridSizes{.context = 2}, {.context = 4}, {.shard = 2, .context = 2}, {.context = 2, .tensor = 2}}) {
      const bool spreads = config_.num_heads / sizes.tensor % sizes.context == 0;
      if (method == ContextMethod::heads && !spreads) continue;
      meshes.push_back(
          {.sizes = sizes, .sequence_parallel = sizes.tensor > 1, .stage = sizes.shard > 1 ? 3 : 0, .method = method});
    }
  expect_on(meshes);
}

/// The golden models have 2 or 3 blocks, thus 4 or 5 Units: enough for four pipeline stages. Interleaved1F1B and
/// ZBVZeroBubble have two stages per rank, so that four ranks need 8 Units: no family can run them, and that is
/// refused.
TEST_P(GoldenMeshes, ranks_that_hold_different_layers_agree_by_every_schedule) {
  for (const PipelineSchedule schedule : test::kAllSchedules)
    for (const int ranks : {2, 4}) {
      GoldenCase each = on({.sizes = {.pipeline = ranks}, .schedule = schedule});
      each.micro_batches = 2;  // of whole rows: the golden batch has two
      if (each.mesh.stages() > 4) {
        EXPECT_LT(config_.num_layers + 2, each.mesh.stages()) << "this family has enough Units: test it";
        EXPECT_THROW(stage_begins(config_, {}, each.mesh.stages()), ConfigError);
        continue;
      }
      each.expect_golden();
      if (!balances_) continue;
      each.balanced = true, each.micro_batches = 1;  // the loss of the whole batch
      each.expect_golden();
      if (ranks > 2) continue;
      each.mesh.sizes.shard = 4, each.mesh.stage = 3;  // two have placeholders
      each.expect_golden();
    }
}

TEST_P(GoldenMeshes, they_agree_where_stage_3_shards_each_pipeline_stage) {
  for (const PipelineSchedule schedule : {PipelineSchedule::one_f_one_b, PipelineSchedule::zbv})
    on({.sizes = {.shard = 2, .pipeline = 2}, .stage = 3, .schedule = schedule}).expect_golden();
}

/// Over ranks that share matrices, layers and experts, also where the stages turn back on a rank.
TEST_P(GoldenMeshes, products_of_axes_agree) {
  const int two = config_.experts ? 2 : 1;
  expect_on({{.sizes = {.tensor = 2, .pipeline = 2}},
             {.sizes = {.shard = 2, .tensor = 2, .pipeline = 2, .expert = two}, .sequence_parallel = true, .stage = 3},
             {.sizes = {.replicate = 2, .shard = 2, .expert = two}, .stage = 3},
             {.sizes = {.shard = 2, .pipeline = 2, .expert = two}, .stage = 2, .schedule = PipelineSchedule::zbv}});
}

INSTANTIATE_TEST_SUITE_P(Families, GoldenMeshes, ::testing::ValuesIn(test::mesh_families()), family_of);

/// Ranks that hold different experts, and exchange the rows of tokens.
class GoldenExperts : public GoldenFamily {
 protected:
  /// The largest size, at most 4, over which the experts divide.
  const int most_ = config_.experts->num_experts % 4 == 0 ? 4 : 3;
};

MeshLayout over(int expert, int shard, int tensor, int stage, bool slices = false) {
  return {.sizes = {.shard = shard, .tensor = tensor, .expert = expert}, .sequence_parallel = slices, .stage = stage};
}

/// Two rows: of three or four ranks, some have none.
TEST_P(GoldenExperts, logits_loss_and_gradients_agree_at_every_size_and_stage) {
  expect_on({over(most_, most_, 1, 0), over(most_, most_, 1, 3), over(2, 4, 1, 1), over(2, 4, 1, 2), over(2, 4, 1, 3),
             over(2, 2, 1, 0), over(2, 2, 1, 1), over(2, 2, 2, 0), over(2, 2, 2, 3), over(2, 2, 2, 0, true)});
  on(over(2, 2, 1, 2), Recompute::full).expect_golden();
  on(over(2, 2, 1, 3), Recompute::selective).expect_golden();
  on(over(2, 2, 2, 3, true), Recompute::selective).expect_golden();
  on(over(2, 2, 1, 0)).on_ranks([](TrainingRank& rank, const ProbeInput& input) {
    probe(rank.model, rank.decoder, input, true);
    EXPECT_GT(rank.mesh.group(Group::experts).traffic()[Collective::all_to_all_v].elements, 0);
  });
}

TEST_P(GoldenExperts, devices_that_run_late_and_that_the_host_cannot_read_agree) {
  for (const MeshLayout& mesh : {over(2, 2, 1, 0), over(2, 2, 2, 3)}) {
    GoldenCase each = on(mesh);
    each.guarded = true;
    each.expect_golden();
  }
}

/// In each pass every rank feeds another number of tokens of another row.
TEST_P(GoldenExperts, logits_with_a_cache_equal_those_without) {
  on(over(2, 2, 1, 0)).on_ranks([](TrainingRank& rank, const ProbeInput& input) {
    const int64_t own = rank.world.rank();
    test::expect_cached_logits(rank, probe_rows(rank.context, input, 0, 1).input_ids.slice(own, own + 1),
                               {5 + 3 * own, 1, 4 - own, 1});
  });
}

/// What two runs computed, up to the rounding of sums in another order.
void expect_near(const ProbeOutput& output, const ProbeOutput& expected, double absolute, double relative = 0) {
  ASSERT_EQ(output.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(output[i].first, expected[i].first);
    const test::Difference difference = test::difference(output[i].second, expected[i].second);
    EXPECT_TRUE(difference.max_abs <= absolute || difference.relative_l2 < relative)
        << expected[i].first << ": " << difference.max_abs << ", relative " << difference.relative_l2;
  }
}

/// An expert takes as many of each rank's tokens as without other ranks' experts.
TEST_P(GoldenExperts, a_capacity_drops_the_tokens_that_it_drops_without_exchange) {
  const auto run = [&](const MeshLayout& mesh) {
    ProbeOutput output;
    std::vector<double> chosen;  // the choices that were dropped, then those of each layer and expert
    test::TrainingCase limited = on(mesh).training();
    limited.model.experts->drop_tokens = true;
    limited.model.experts->capacity_factor = 0.75;
    limited.on_ranks([&](TrainingRank& rank) {
      const ProbeInput input = read_probe_input(rank.context, on(mesh).golden(), config_.vocab_size);
      ProbeOutput of_rank = probe(rank.model, rank.decoder, input, true);
      const Communicator& samples = rank.mesh.group(Group::samples);
      const Batch rows = probe_rows(rank.context, input, samples.rank(), samples.size());
      MicroBatch micro_batch(rank.model, rows, {.recording = false});
      micro_batch.forward();
      RouterLoads loads;
      loads.add(*Decoder::router_log(micro_batch.state()));
      const Tensor sums = loads.summed(rank.context, config_.experts->num_experts, rank.mesh.group(Group::metrics));
      if (rank.is_first()) output = std::move(of_rank), chosen = sums.to_vector<double>();
    });
    return std::pair(std::move(output), chosen);
  };
  const auto [alone, chosen] = run(over(1, 2, 1, 0));
  EXPECT_GT(chosen.front(), 0) << "nothing is dropped";
  for (const MeshLayout& mesh : {over(2, 2, 1, 0), over(2, 2, 1, 3), over(2, 2, 2, 0)}) {
    SCOPED_TRACE(mesh.str());
    const auto [shared, chosen_too] = run(mesh);
    EXPECT_EQ(chosen_too, chosen);
    expect_near(shared, alone, 1e-6, 1e-5);
  }
}

std::vector<const char*> families_with_experts() {
  std::vector<const char*> all = test::mesh_families();
  std::erase_if(all, [](const char* each) { return !ModelConfig::from_folder(test::golden_folder(each)).experts; });
  return all;
}
INSTANTIATE_TEST_SUITE_P(Families, GoldenExperts, ::testing::ValuesIn(families_with_experts()), family_of);

/// With the loss that balances experts: over the tokens of all ranks that read samples, wherever the experts are.
class GoldenAuxiliary : public GoldenExperts {};

TEST_P(GoldenAuxiliary, loss_and_gradients_agree_at_every_stage_and_rank_count) {
  std::vector<std::pair<MeshLayout, Recompute>> cases{{{}, Recompute::none}, {{}, Recompute::full}};
  for (const int stage : {0, 1, 2, 3}) cases.emplace_back(test::sharded(2, stage), Recompute::none);
  cases.emplace_back(test::sharded(2, 3), Recompute::selective);
  for (const int stage : {0, 3}) cases.emplace_back(test::sharded(4, stage), Recompute::none);  // two have no row
  cases.emplace_back(over(2, 2, 1, 2), Recompute::full);
  cases.emplace_back(over(2, 4, 1, 3), Recompute::none);
  cases.emplace_back(over(most_, most_, 1, 1), Recompute::none);
  cases.emplace_back(over(2, 2, 2, 3), Recompute::none);
  for (const auto& [mesh, recompute] : cases) {
    GoldenCase each = on(mesh, recompute);
    each.balanced = true;
    each.expect_golden();
  }
}

/// The tokens of a rank whose rows have no target count in the means over tokens as where one rank reads all rows.
TEST_P(GoldenAuxiliary, rows_without_targets_count_alike_wherever_they_are_read) {
  const auto run = [&](const MeshLayout& mesh) {
    GoldenCase each = on(mesh);
    each.balanced = true, each.balance_coefficient = 1;
    return each.probe([](const ProbeInput& input) {
      std::fill_n(input.labels.data<int64_t>() + input.labels.dim(1), input.labels.dim(1), kIgnoredTarget);
    });
  };
  const ProbeOutput alone = run({});
  for (const MeshLayout& mesh : {over(1, 2, 1, 2), over(2, 2, 1, 0), over(2, 2, 2, 3), over(2, 4, 1, 3)}) {
    SCOPED_TRACE(mesh.str());
    expect_near(run(mesh), alone, 2e-6);
  }
}

TEST_P(GoldenAuxiliary, the_log_holds_the_auxiliary_loss_and_every_choice) {
  GoldenCase each = on({});
  each.balanced = true;
  each.on_ranks([&](TrainingRank& rank, const ProbeInput& input) {
    const Batch rows = probe_rows(rank.context, input, 0, 1);
    MicroBatch micro_batch(rank.model, rows, {.recording = false});
    micro_batch.forward();
    const RouterLog& log = *Decoder::router_log(micro_batch.state());
    const SafetensorsFile golden(folder_ + "/golden_aux.safetensors");
    EXPECT_NEAR(test::balance_of(rank.context, log).loss.item(), golden.load("aux_loss", *rank.context.memory).item(),
                5e-6);
    EXPECT_EQ(log.layers().size(), 2u);
    for (const RouterLog::Layer& layer : log.layers()) {
      EXPECT_EQ(static_cast<int64_t>(layer.load.size()), config_.experts->num_experts);
      EXPECT_EQ(std::accumulate(layer.load.begin(), layer.load.end(), int64_t{0}),
                input.ids.numel() * config_.experts->rule.top_k);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Families, GoldenAuxiliary, ::testing::ValuesIn(test::kAuxiliaryFamilies), family_of);

}  // namespace
}  // namespace nought::golden_meshes_test
