// Ranks that hold different experts, and exchange the rows of tokens, compute what one rank computes.
#include <fstream>

#include "support/golden_output.h"
#include "support/guarded_context.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "nought/comm/thread.h"
#include "nought/train/hf_folder.h"
#include "nought/zero/micro_batch.h"

namespace nought::expert_parallel_test {
namespace {

using test::golden_folder;

struct Layout {
  int shard = 1, expert = 1, tensor = 1, stage = 0;
  Recompute recompute = Recompute::none;
  bool slices = false;  // between products a rank has a slice of the tokens

  int ranks() const { return shard * tensor; }
  GridSizes sizes() const { return {.shard = shard, .tensor = tensor, .expert = expert, .expert_tensor = tensor}; }
  std::string str() const {
    return fmt::format("experts over {} of {} ranks, tensor {}, stage {}, recompute {}, slices {}", expert, shard,
                       tensor, stage, name_of(recompute), slices);
  }
};

/// A decoder of a golden folder on one rank of a layout.
struct ExpertRank {
  ExpertRank(Communicator& world, const Context& on, const Layout& layout, const ModelConfig& config,
             const std::string& folder)
      : context(on),
        mesh(world, layout.sizes()),
        decoder(config, layout.recompute, {}, ModelRanks(mesh, layout.slices)),
        model(context, mesh, decoder, {.policy = Policy::stage(layout.stage)}) {
    model.load(HfWeights(folder, decoder));
  }
  ProbeInput golden_input(const std::string& folder) const {
    return read_probe_input(context, folder + "/golden.safetensors", decoder.config().vocab_size);
  }

  Context context;
  Mesh mesh;
  Decoder decoder;
  ShardedModel model;
};

template <class Body>
void on_ranks(const Layout& layout, const ModelConfig& config, const std::string& folder, const Body& body,
              bool guarded = false) {
  SCOPED_TRACE(layout.str());
  run_ranks(test::contexts_of(layout.ranks(), guarded), [&](Communicator& world, const Context& context) {
    ExpertRank rank(world, context, layout, config, folder);
    body(rank);
  });
}

/// The largest size, at most 4, over which the experts divide.
int most_ranks(const ModelConfig& config) { return config.experts->num_experts % 4 == 0 ? 4 : 3; }

class GoldenExpertParallel : public ::testing::TestWithParam<const char*> {
 protected:
  const std::string folder = golden_folder(GetParam());
  const ModelConfig config = ModelConfig::from_folder(folder);
};

/// Two rows: of three or four ranks, some have none.
TEST_P(GoldenExpertParallel, logits_loss_and_gradients_agree_at_every_size_and_stage) {
  const int most = most_ranks(config);
  std::vector<Layout> layouts{{most, most, 1, 0},
                              {most, most, 1, 3},
                              {4, 2, 1, 1},
                              {4, 2, 1, 2},
                              {4, 2, 1, 3},
                              {2, 2, 1, 2, Recompute::full},
                              {2, 2, 1, 3, Recompute::selective},
                              {2, 2, 2, 0},
                              {2, 2, 2, 3},
                              {2, 2, 2, 0, Recompute::none, true},
                              {2, 2, 2, 3, Recompute::selective, true}};
  for (const int stage : {0, 1, 2, 3}) layouts.push_back({2, 2, 1, stage});
  for (const Layout& layout : layouts)
    on_ranks(layout, config, folder, [&](ExpertRank& rank) {
      const ProbeOutput output = probe(rank.model, rank.decoder, rank.golden_input(folder), true);
      if (rank.mesh.world().rank() == 0) test::expect_all_golden(output, folder + "/golden.safetensors");
      EXPECT_GT(rank.mesh.group(Group::experts).traffic()[Collective::all_to_all_v].elements, 0);
    });
}

TEST_P(GoldenExpertParallel, devices_that_run_late_and_that_the_host_cannot_read_agree) {
  const auto compare = [&](ExpertRank& rank) {
    const ProbeOutput output = probe(rank.model, rank.decoder, rank.golden_input(folder), true);
    if (rank.mesh.world().rank() == 0) test::expect_all_golden(output, folder + "/golden.safetensors");
  };
  for (const Layout& layout : {Layout{2, 2, 1, 0}, {2, 2, 2, 3}})
    on_ranks(layout, config, folder, compare, /*guarded=*/true);
}

/// In each pass every rank feeds another number of tokens of another row.
TEST_P(GoldenExpertParallel, logits_with_a_cache_equal_those_without) {
  on_ranks({2, 2}, config, folder, [&](ExpertRank& rank) {
    const Context& context = rank.context;
    const int64_t own = rank.mesh.world().rank(), vocab = config.vocab_size;
    const Tensor ids = probe_rows(context, rank.golden_input(folder), 0, 1).input_ids.slice(own, own + 1);
    const int64_t length = ids.dim(1);
    const Tensor all = rank.decoder.logits(context, {ids, {}});
    DecoderCache cache = rank.decoder.make_cache(context, length, DType::f32);
    int64_t held = 0;
    for (const int64_t count : {5 + 3 * own, int64_t{1}, 4 - own, int64_t{1}}) {
      const NextTokens fed{0, ids.flat(held, held + count).span<int32_t>()};
      const Tensor next = rank.decoder.next_logits(context, std::span(&fed, 1), cache);
      held += count;
      EXPECT_LE(test::difference(next, all.flat((held - 1) * vocab, held * vocab)).max_abs, 1e-4) << held;
    }
  });
}

/// An expert takes as many of each rank's tokens as without other ranks' experts.
TEST_P(GoldenExpertParallel, a_capacity_drops_the_tokens_that_it_drops_without_exchange) {
  ModelConfig limited = config;
  limited.experts->drop_tokens = true;
  limited.experts->capacity_factor = 0.75;
  const auto run = [&](const Layout& layout) {
    ProbeOutput output;
    std::vector<double> chosen;  // the choices that were dropped, then those of each layer and expert
    on_ranks(layout, limited, folder, [&](ExpertRank& rank) {
      const ProbeInput input = rank.golden_input(folder);
      ProbeOutput of_rank = probe(rank.model, rank.decoder, input, true);
      const Communicator& samples = rank.mesh.group(Group::samples);
      const Batch rows = probe_rows(rank.context, input, samples.rank(), samples.size());
      MicroBatch micro_batch(rank.model, rows, {.recording = false});
      micro_batch.forward();
      RouterLoads loads;
      loads.add(*Decoder::router_log(micro_batch.state()));
      const Tensor sums =
          loads.summed(rank.context, rank.decoder.config().experts->num_experts, rank.mesh.group(Group::metrics));
      if (rank.mesh.world().rank() != 0) return;
      output = std::move(of_rank), chosen = sums.to_vector<double>();
    });
    return std::pair(std::move(output), chosen);
  };
  const auto [alone, chosen] = run({.shard = 2});
  EXPECT_GT(chosen.front(), 0) << "nothing is dropped";
  for (const Layout& layout : {Layout{2, 2, 1, 0}, {2, 2, 1, 3}, {2, 2, 2, 0}}) {
    SCOPED_TRACE(layout.str());
    const auto [shared, chosen_too] = run(layout);
    EXPECT_EQ(chosen_too, chosen);
    ASSERT_EQ(shared.size(), alone.size());
    for (size_t i = 0; i < alone.size(); ++i) {
      EXPECT_EQ(shared[i].first, alone[i].first);
      const test::Difference difference = test::difference(shared[i].second, alone[i].second);
      EXPECT_TRUE(difference.max_abs < 1e-6 || difference.relative_l2 < 1e-5)
          << alone[i].first << ": " << difference.max_abs << ", relative " << difference.relative_l2;
    }
  }
}

std::string family_of(const ::testing::TestParamInfo<const char*>& info) { return std::string(info.param).substr(5); }

INSTANTIATE_TEST_SUITE_P(Families, GoldenExpertParallel,
                         ::testing::Values("open/deepseek_v2", "open/deepseek_v2_lite", "open/deepseek_v3",
                                           "open/deepseek_v3_yarn", "open/gpt_oss", "open/mixtral", "open/qwen2_moe",
                                           "open/qwen3_moe"),
                         family_of);

/// With the loss that balances experts: over the tokens of all ranks that read samples, wherever the experts are.
class GoldenAuxiliaryExpertParallel : public GoldenExpertParallel {};

TEST_P(GoldenAuxiliaryExpertParallel, the_loss_of_routers_and_its_gradients_agree) {
  nlohmann::json json = nlohmann::json::parse(std::ifstream(folder + "/config.json"));
  json["output_router_logits"] = true;
  const ModelConfig balanced = ModelConfig::from_json(json, folder);
  const int most = most_ranks(config);
  for (const Layout& layout :
       {Layout{2, 2, 1, 0}, {2, 2, 1, 2, Recompute::full}, {4, 2, 1, 3}, {most, most, 1, 1}, {2, 2, 2, 3}})
    on_ranks(layout, balanced, folder, [&](ExpertRank& rank) {
      ProbeOutput output = probe(rank.model, rank.decoder, rank.golden_input(folder), true);
      std::erase_if(output, [](const auto& each) { return each.first == "logits"; });
      if (rank.mesh.world().rank() == 0) test::expect_golden(output, folder + "/golden_aux.safetensors");
    });
}

/// The tokens of a rank whose rows have no target count in the means over tokens as where one rank reads all rows.
TEST_P(GoldenAuxiliaryExpertParallel, rows_without_targets_count_alike_wherever_they_are_read) {
  nlohmann::json json = nlohmann::json::parse(std::ifstream(folder + "/config.json"));
  json["output_router_logits"] = true;
  json["router_aux_loss_coef"] = 1.0;
  const ModelConfig balanced = ModelConfig::from_json(json, folder);
  const auto run = [&](const Layout& layout) {
    ProbeOutput output;
    on_ranks(layout, balanced, folder, [&](ExpertRank& rank) {
      const ProbeInput input = rank.golden_input(folder);
      std::fill_n(input.labels.data<int64_t>() + input.labels.dim(1), input.labels.dim(1), kIgnoredTarget);
      ProbeOutput of_rank = probe(rank.model, rank.decoder, input, true);
      if (rank.mesh.world().rank() == 0) output = std::move(of_rank);
    });
    return output;
  };
  const ProbeOutput alone = run({.shard = 1});
  for (const Layout& layout : {Layout{2, 1, 1, 2}, {2, 2, 1, 0}, {2, 2, 2, 3}, {4, 2, 1, 3}}) {
    SCOPED_TRACE(layout.str());
    const ProbeOutput shared = run(layout);
    ASSERT_EQ(shared.size(), alone.size());
    for (size_t i = 0; i < alone.size(); ++i)
      EXPECT_LE(test::difference(shared[i].second, alone[i].second).max_abs, 2e-6) << alone[i].first;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, GoldenAuxiliaryExpertParallel,
                         ::testing::Values("open/mixtral", "open/qwen2_moe", "open/qwen3_moe"), family_of);

}  // namespace
}  // namespace nought::expert_parallel_test
