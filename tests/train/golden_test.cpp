// What Nought computes is what Hugging Face computes: logits, loss, every gradient and five AdamW steps. Every family
// on one rank and at stage 3; what meshes share is golden_meshes_test's.
#include <algorithm>
#include <numeric>

#include "support/golden_case.h"
#include "support/size.h"
#include <gmock/gmock.h>

#include "nought/comm/thread.h"
#include "nought/models/tensor_cuts.h"
#include "nought/weights/hf_folder.h"

namespace nought::golden_test {
namespace {

using test::golden_folder;
using test::GoldenCase;
using test::sharded;
using test::TrainingRank;

/// The rows of the golden batch, [2, length].
Tensor golden_ids(TrainingRank& rank, const ProbeInput& input) {
  return probe_rows(rank.context, input, 0, 1).input_ids;
}

class GoldenLayouts : public ::testing::TestWithParam<const char*> {};

TEST_P(GoldenLayouts, logits_loss_and_gradients_agree_at_every_stage_and_rank_count) {
  for (const int ranks : {2, 4})
    for (const int stage : {0, 1, 2, 3})
      GoldenCase{.folder = golden_folder(GetParam()), .mesh = sharded(ranks, stage)}.expect_golden();
}

class Golden : public ::testing::TestWithParam<const char*> {
 protected:
  GoldenCase on(const test::MeshLayout& mesh) const { return {.folder = golden_folder(GetParam()), .mesh = mesh}; }
};

TEST_P(Golden, logits_loss_and_gradients_agree_on_one_rank_and_sharded) {
  on({}).expect_golden();
  on(sharded(2, 3)).expect_golden();
}

TEST_P(Golden, a_device_that_runs_late_and_that_the_host_cannot_read_agrees) {
  for (const auto& mesh : {sharded(1, 0), sharded(2, 3)}) {
    GoldenCase each = on(mesh);
    each.guarded = true;
    each.expect_golden();
  }
}

TEST_P(Golden, the_reference_kernels_agree_too) {
  GoldenCase each = on({});
  each.contexts = {Context::reference()};
  each.expect_golden();
}

TEST_P(Golden, blocks_that_are_computed_again_give_the_same_bits) {
  const auto run = [&](Recompute recompute) {
    GoldenCase each = on({});
    each.recompute = recompute;
    std::vector<std::vector<float>> values;
    for (const auto& [name, tensor] : each.probe()) values.push_back(tensor.to_vector<float>());
    return values;
  };
  const auto plain = run(Recompute::none);
  EXPECT_EQ(run(Recompute::full), plain);
  EXPECT_EQ(run(Recompute::selective), plain);
}

/// Step by step from a cache, across windows and the length at which longrope changes, as without one.
TEST_P(Golden, logits_with_a_cache_equal_those_without) {
  on({}).on_ranks([](TrainingRank& rank, const ProbeInput& input) {
    const Tensor ids = golden_ids(rank, input).slice(0, 1);  // [1, length]
    const int64_t length = ids.dim(1), vocab = rank.decoder.config().vocab_size, prompt = 5;
    DecoderCache cache = rank.decoder.make_cache(rank.context, length, DType::f32);
    for (int64_t held = 0; held < length;) {
      const int64_t count = held == 0 ? prompt : 1;
      const NextTokens fed{0, ids.flat(held, held + count).span<int32_t>()};
      const Tensor next = rank.decoder.next_logits(rank.context, std::span(&fed, 1), cache);
      held += count;
      const Tensor all = rank.decoder.logits(rank.context, {ids.flat(0, held).reshape({1, held}), {}});
      EXPECT_LE(test::difference(next, all.flat((held - 1) * vocab, held * vocab)).max_abs, 0) << held;
    }
  });
}

/// Several sequences in one cache that are of different lengths, fed a few tokens at a time and not all at once.
TEST_P(Golden, logits_of_a_batch_with_a_cache_equal_those_without) {
  on({}).on_ranks([](TrainingRank& rank, const ProbeInput& input) {
    const Tensor ids = golden_ids(rank, input);
    const int64_t length = ids.dim(1);
    const std::vector<Interval> ranges{{0, length}, {length, length + 15}, {length + 3, 2 * length}};
    DecoderCache cache = rank.decoder.make_cache(rank.context, length, DType::f32, 3);
    std::vector<int64_t> held(ranges.size());
    for (int64_t step = 0; step < length; ++step) {
      std::vector<NextTokens> next;
      for (size_t i = 0; i < ranges.size(); ++i) {
        const int64_t left = ranges[i].size() - held[i],
                      count = std::min(left, 1 + (step + static_cast<int64_t>(i)) % 3);
        if (count == 0 || step % 4 == static_cast<int64_t>(i)) continue;
        const int64_t begin = ranges[i].begin + held[i];
        next.push_back({static_cast<int64_t>(i), ids.flat(begin, begin + count).span<int32_t>()});
        held[i] += count;
      }
      if (next.empty()) continue;
      const Tensor logits = rank.decoder.next_logits(rank.context, next, cache);
      for (size_t n = 0; n < next.size(); ++n) {
        const auto sequence = static_cast<size_t>(next[n].sequence);
        const int64_t begin = ranges[sequence].begin, count = held[sequence], row = static_cast<int64_t>(n);
        const Tensor all = rank.decoder.logits(rank.context, {ids.flat(begin, begin + count).reshape({1, count}), {}});
        EXPECT_LE(test::difference(logits.slice(row, row + 1), all.slice(count - 1, count)).max_abs, 0)
            << "sequence " << sequence << " of " << count;
      }
    }
    EXPECT_THAT(held, ::testing::ElementsAre(length, 15, length - 3));
  });
}

INSTANTIATE_TEST_SUITE_P(Families, GoldenLayouts,
                         ::testing::Values("open/llama_gqa", "open/gpt2", "open/gpt2_untied",
                                           "loader/llama_gqa_bf16_sharded", "loader/gpt2_hub_names"),
                         test::name_of_folder<const char*>);
INSTANTIATE_TEST_SUITE_P(Families, Golden, ::testing::ValuesIn(test::kGoldenFamilies),
                         test::name_of_folder<const char*>);

/// Options of a family that none of its other folders has.
class GoldenVariant : public ::testing::TestWithParam<const char*> {};

TEST_P(GoldenVariant, logits_loss_and_gradients_agree_on_one_rank_and_on_several) {
  const std::string folder = golden_folder(GetParam());
  std::vector<test::MeshLayout> meshes{sharded(1, 0), sharded(2, 3), {.sizes = {.pipeline = 2}}};
  if (reason_not_to_cut(ModelConfig::from_folder(folder), 2).empty())
    meshes.push_back({.sizes = {.tensor = 2}, .sequence_parallel = true});
  for (const auto& mesh : meshes) GoldenCase{.folder = folder, .mesh = mesh}.expect_golden();
}

INSTANTIATE_TEST_SUITE_P(Options, GoldenVariant, ::testing::ValuesIn(test::kGoldenVariants),
                         test::name_of_folder<const char*>);

/// Families that are options: each option on every kind of mesh, with a cache, and computed again.
class GoldenOption : public ::testing::TestWithParam<const char*> {};

TEST_P(GoldenOption, logits_loss_and_gradients_agree_on_every_axis) {
  const std::string folder = golden_folder(GetParam());
  std::vector<test::MeshLayout> meshes{
      sharded(1, 0), sharded(2, 3), {.sizes = {.tensor = 2}, .sequence_parallel = true}, {.sizes = {.pipeline = 2}}};
  const ModelConfig config = ModelConfig::from_folder(folder);
  if (!config.keeps_states()) meshes.push_back({.sizes = {.context = 2}});
  if (config.experts) meshes.push_back({.sizes = {.shard = 2, .expert = 2}, .stage = 2});
  for (const auto& mesh : meshes) GoldenCase{.folder = folder, .mesh = mesh}.expect_golden();
  GoldenCase{.folder = folder, .mesh = sharded(2, 3), .recompute = Recompute::full}.expect_golden();
  GoldenCase{.folder = folder, .contexts = {Context::reference()}}.expect_golden();
}

/// Every mesh of four ranks at every stage by every schedule, and every way to share sequences.
NOUGHT_SIZE(long);
TEST(GoldenOptions, agree_on_every_mesh_of_four_ranks) {
  for (const char* name : test::kGoldenOptions) {
    const std::string folder = golden_folder(name);
    const ModelConfig config = ModelConfig::from_folder(folder);
    std::vector<test::MeshLayout> meshes = test::every_mesh(4, config.experts.has_value());
    std::erase_if(meshes, [&](const test::MeshLayout& mesh) {
      return !reason_not_to_cut(config, mesh.sizes.tensor).empty() || mesh.stages() > config.num_layers + 2 ||
             (config.experts && config.experts->num_experts % mesh.sizes.expert != 0);
    });
    EXPECT_GT(meshes.size(), 20u) << name;
    for (const ContextMethod method : test::kContextMethods)
      for (const GridSizes& sizes :
           {GridSizes{.context = 2}, {.context = 4}, {.shard = 2, .context = 2}, {.context = 2, .tensor = 2}})
        if (!config.keeps_states() &&
            (method != ContextMethod::heads || config.num_heads / sizes.tensor % sizes.context == 0))
          meshes.push_back({.sizes = sizes, .stage = sizes.shard > 1 ? 3 : 0, .method = method});
    for (const auto& mesh : meshes) GoldenCase{.folder = folder, .mesh = mesh}.expect_golden();
  }
}

TEST_P(GoldenOption, logits_with_a_cache_equal_those_without) {
  GoldenCase{.folder = golden_folder(GetParam())}.on_ranks([](TrainingRank& rank, const ProbeInput& input) {
    const Tensor ids = golden_ids(rank, input).slice(0, 1);
    test::expect_cached_logits(rank, ids, {5, 1, 1, 3, 1, 1, 4, 1, ids.dim(1) - 17});
  });
}

/// Where a state cannot be undone, the sequence begins anew.
TEST(GoldenStates, a_sequence_that_is_cut_back_is_fed_from_its_begin) {
  for (const char* name : test::kGoldenStates)
    GoldenCase{.folder = golden_folder(name)}.on_ranks([](TrainingRank& rank, const ProbeInput& input) {
      const Tensor ids = golden_ids(rank, input).slice(0, 1);
      DecoderCache cache = rank.decoder.make_cache(rank.context, ids.dim(1), DType::f32, 2);
      const auto feed = [&](int64_t begin, int64_t end) {
        const NextTokens fed{1, ids.flat(begin, end).span<int32_t>()};
        return rank.decoder.next_logits(rank.context, std::span(&fed, 1), cache).to_vector<float>();
      };
      const std::vector<float> first = feed(0, 7);
      EXPECT_EQ(rank.decoder.keep_first(cache, 1, 9), 7) << "nothing is removed";
      feed(7, 12);
      EXPECT_EQ(rank.decoder.keep_first(cache, 1, 7), 0);
      EXPECT_EQ(feed(0, 7), first);
    });
}

INSTANTIATE_TEST_SUITE_P(Families, GoldenOption, ::testing::ValuesIn(test::kGoldenOptions),
                         test::name_of_folder<const char*>);

TEST(GoldenVariants, a_sequence_is_continued_while_its_rotations_do_not_depend_on_its_length) {
  GoldenCase{.folder = golden_folder("open/llama_dynamic")}.on_ranks([](TrainingRank& rank, const ProbeInput&) {
    const int64_t most = rank.decoder.config().max_positions, vocab = rank.decoder.config().vocab_size;
    ASSERT_EQ(rank.decoder.config().most_cached(), most);
    std::vector<int32_t> ids(static_cast<size_t>(most + 1));
    std::iota(ids.begin(), ids.end(), 3);
    DecoderCache cache = rank.decoder.make_cache(rank.context, most + 1, DType::f32);
    const auto feed = [&](int64_t begin, int64_t end) {
      const auto count = static_cast<size_t>(end - begin);
      const NextTokens fed{0, std::span<const int32_t>(ids).subspan(static_cast<size_t>(begin), count)};
      return rank.decoder.next_logits(rank.context, std::span(&fed, 1), cache);
    };
    const auto whole = [&](int64_t count) {
      const std::vector<int32_t> first(ids.begin(), ids.begin() + count);
      const Tensor row = Tensor::of<int32_t>(*rank.context.memory, {1, count}, first);
      return rank.decoder.logits(rank.context, {row, {}}).flat((count - 1) * vocab, count * vocab);
    };
    const Tensor longer = whole(most + 1);  // whose tables must not serve the others
    EXPECT_LE(test::difference(feed(0, most - 1), whole(most - 1)).max_abs, 1e-5);
    EXPECT_LE(test::difference(feed(most - 1, most), whole(most)).max_abs, 1e-5);
    EXPECT_LE(test::difference(whole(most + 1), longer).max_abs, 0);
    EXPECT_THROW(feed(most, most + 1), ConfigError);
  });
}

/// The golden batch with its first row once more, all of whose labels are ignored but some: three rows.
TEST(Probe, three_rows_over_two_and_four_ranks_equal_one_rank) {
  const auto run = [&](const test::MeshLayout& mesh) {
    ProbeOutput result;
    GoldenCase{.folder = golden_folder("open/llama_gqa"), .mesh = mesh}.on_ranks(
        [&](TrainingRank& rank, const ProbeInput& two) {
          ProbeInput three{rank.context.empty({3, 24}, DType::i64), rank.context.empty({3, 24}, DType::i64)};
          for (int64_t i = 0; i < 72; ++i) {
            three.ids.data<int64_t>()[i] = two.ids.data<int64_t>()[i % 48];
            three.labels.data<int64_t>()[i] = i % 5 == 3 ? -100 : two.labels.data<int64_t>()[i % 48];
          }
          ProbeOutput output = probe(rank.model, rank.decoder, three, true);
          if (rank.is_first()) result = std::move(output);
        });
    return result;
  };
  const ProbeOutput one = run({});
  for (const auto& mesh : {sharded(2, 0), sharded(2, 1), sharded(2, 2), sharded(2, 3), sharded(4, 3)}) {
    const ProbeOutput other = run(mesh);
    ASSERT_EQ(other.size(), one.size());
    for (size_t i = 0; i < one.size(); ++i)
      EXPECT_LE(test::difference(other[i].second, one[i].second).relative_l2, 1e-5)
          << one[i].first << " on " << mesh.str();
  }
}

class GoldenTraining : public ::testing::TestWithParam<const char*> {
 protected:
  const std::string folder_ = golden_folder(GetParam());
  /// All parameters are those of the golden file that have this prefix.
  static void expect_parameters(TrainingRank& rank, const SafetensorsFile& golden, const std::string& prefix) {
    for (size_t i = 0; i < rank.decoder.units().size(); ++i)
      rank.model.with_parameters(i, [&](const Parameter& parameter, const Tensor& have) {
        const Tensor want = golden.load(prefix + parameter.name, *rank.context.memory);
        if (!test::is_gpt2_attention_bias(parameter.name)) {
          EXPECT_LE(test::difference(have, want).max_abs, 1e-4) << parameter.name;
          return;
        }
        const int64_t third = have.numel() / 3;  // q, k, v; Adam normalises the noise of the key part
        for (int64_t part = 0; part < 3; ++part)
          EXPECT_LE(
              test::difference(have.flat(part * third, (part + 1) * third), want.flat(part * third, (part + 1) * third))
                  .max_abs,
              part == 1 ? 5e-3 : 1e-4)
              << parameter.name << " part " << part;
      });
  }
};

TEST_P(GoldenTraining, five_adamw_steps_follow_torch) {
  for (const auto& mesh :
       {sharded(1, 0), sharded(2, 0), sharded(2, 1), sharded(2, 2), sharded(2, 3), sharded(4, 2), sharded(4, 3)}) {
    SCOPED_TRACE(mesh.str());
    test::TrainingCase training = GoldenCase{.folder = folder_, .mesh = mesh}.training();
    training.settings.optimizer = {
        .method = AdamOptions{.beta1 = 0.9, .beta2 = 0.95}, .weight_decay = 0.1, .decay_all = true};
    training.on_ranks([&](TrainingRank& rank) {
      const ProbeInput input = read_probe_input(rank.context, folder_ + "/golden.safetensors", 256);
      const Batch rows = probe_rows(rank.context, input, rank.world.rank(), rank.world.size());
      const SafetensorsFile golden(folder_ + "/golden_train.safetensors");
      const auto numbers = [&](const char* name) {
        return golden.load(name, *rank.context.memory).to_vector<double>();
      };
      const std::vector<double> losses = numbers("loss"), norms = numbers("grad_norm");
      for (size_t step = 0; step < 5; ++step) {
        const StepResult result = rank.engine.step(std::span(&rows, 1), count_targets(input), 1e-3, 1.0);
        EXPECT_NEAR(result.loss, losses[step], 1e-5) << step;
        EXPECT_NEAR(result.grad_norm, norms[step], 1e-5 * norms[step]) << step;
        if (step == 0) expect_parameters(rank, golden, "param_step1.");
      }
      expect_parameters(rank, golden, "param.");
      EXPECT_NEAR(rank.engine.evaluate(std::span(&rows, 1), count_targets(input)), numbers("loss_after")[0], 1e-5);
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Families, GoldenTraining, ::testing::Values("open/llama", "open/gpt2"), test::family_of);

}  // namespace
}  // namespace nought::golden_test
