// What Nought computes is what Hugging Face computes: logits, loss, every gradient and five AdamW steps, in any layout.
#include "support/golden_output.h"
#include "support/guarded_context.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/comm/thread.h"
#include "nought/train/hf_folder.h"

namespace nought::golden_test {
namespace {

using test::golden_folder;

struct Layout {
  int ranks = 1, stage = 0;
  bool guarded = false;
};

/// A decoder of a golden folder on one rank of a layout.
struct Loaded {
  Loaded(Communicator& ranks, const std::string& folder, int stage, const OptimizerOptions& optimizer = {},
         Context on = Context::cpu())
      : Loaded(ranks, folder, ModelConfig::from_folder(folder), stage, optimizer, std::move(on)) {}
  Loaded(Communicator& ranks, const std::string& folder, const ModelConfig& config, int stage,
         const OptimizerOptions& optimizer = {}, Context on = Context::cpu(), Recompute recompute = Recompute::none)
      : context(std::move(on)),
        decoder(config, recompute),
        model(context, ranks, decoder, {.policy = Policy::stage(stage), .optimizer = optimizer}) {
    model.load(HfWeights(folder, decoder));
  }
  Context context;
  Decoder decoder;
  ShardedModel model;
};

void expect_golden_at(const std::string& folder, const std::vector<Layout>& layouts) {
  const std::string golden = folder + "/golden.safetensors";
  for (const Layout layout : layouts) {
    SCOPED_TRACE(fmt::format("{} ranks, stage {}", layout.ranks, layout.stage));
    run_ranks(test::contexts_of(layout.ranks, layout.guarded), [&](Communicator& ranks, const Context& context) {
      Loaded loaded(ranks, folder, layout.stage, {}, context);
      const ProbeInput input = read_probe_input(loaded.context, golden, loaded.decoder.config().vocab_size);
      const ProbeOutput output = probe(loaded.model, loaded.decoder, input, true);
      if (ranks.rank() != 0) return;
      test::expect_all_golden(output, golden);
    });
  }
}

class GoldenLayouts : public ::testing::TestWithParam<const char*> {};

TEST_P(GoldenLayouts, logits_loss_and_gradients_agree_at_every_stage_and_rank_count) {
  expect_golden_at(golden_folder(GetParam()), {{1, 0}, {2, 0}, {2, 1}, {2, 2}, {2, 3}, {4, 0}, {4, 1}, {4, 2}, {4, 3}});
}

class Golden : public ::testing::TestWithParam<const char*> {};

TEST_P(Golden, logits_loss_and_gradients_agree_on_one_rank_and_sharded) {
  expect_golden_at(golden_folder(GetParam()), {{1, 0}, {2, 3}});
}

TEST_P(Golden, a_device_that_runs_late_and_that_the_host_cannot_read_agrees) {
  expect_golden_at(golden_folder(GetParam()), {{1, 0, true}, {1, 3, true}, {2, 0, true}, {2, 3, true}});
}

TEST_P(Golden, the_reference_kernels_agree_too) {
  const std::string folder = golden_folder(GetParam());
  const auto self = make_self_communicator();
  Loaded loaded(*self, folder, 0, {}, Context::reference());
  const ProbeInput input =
      read_probe_input(loaded.context, folder + "/golden.safetensors", loaded.decoder.config().vocab_size);
  test::expect_golden(probe(loaded.model, loaded.decoder, input, true), folder + "/golden.safetensors");
}

TEST_P(Golden, blocks_that_are_computed_again_give_the_same_bits) {
  const std::string folder = golden_folder(GetParam());
  const auto run = [&](Recompute recompute) {
    const auto self = make_self_communicator();
    Loaded loaded(*self, folder, ModelConfig::from_folder(folder), 0, {}, Context::cpu(), recompute);
    const ProbeInput input =
        read_probe_input(loaded.context, folder + "/golden.safetensors", loaded.decoder.config().vocab_size);
    ProbeOutput output = probe(loaded.model, loaded.decoder, input, true);
    std::vector<std::vector<float>> values;
    for (const auto& [name, tensor] : output) values.push_back(tensor.to_vector<float>());
    return values;
  };
  EXPECT_EQ(run(Recompute::full), run(Recompute::none));
  EXPECT_EQ(run(Recompute::selective), run(Recompute::none));
}

/// Step by step from a cache, across windows and the length at which longrope changes, as without one.
TEST_P(Golden, logits_with_a_cache_equal_those_without) {
  const std::string folder = golden_folder(GetParam());
  const auto self = make_self_communicator();
  Loaded loaded(*self, folder, 0);
  const ProbeInput input =
      read_probe_input(loaded.context, folder + "/golden.safetensors", loaded.decoder.config().vocab_size);
  const Tensor ids = probe_rows(loaded.context, input, 0, 1).input_ids.slice(0, 1);  // [1, length]
  const int64_t length = ids.dim(1), vocab = loaded.decoder.config().vocab_size, prompt = 5;
  DecoderCache cache = loaded.decoder.make_cache(loaded.context, length, DType::f32);
  for (int64_t held = 0; held < length;) {
    const int64_t count = held == 0 ? prompt : 1;
    const NextTokens fed{0, ids.flat(held, held + count).span<int32_t>()};
    const Tensor next = loaded.decoder.next_logits(loaded.context, std::span(&fed, 1), cache);
    held += count;
    const Tensor all = loaded.decoder.logits(loaded.context, {ids.flat(0, held).reshape({1, held}), {}});
    EXPECT_LE(test::difference(next, all.flat((held - 1) * vocab, held * vocab)).max_abs, 1e-4) << held;
  }
}

/// Several sequences in one cache that are of different lengths, fed a few tokens at a time and not all at once.
TEST_P(Golden, logits_of_a_batch_with_a_cache_equal_those_without) {
  const std::string folder = golden_folder(GetParam());
  const auto self = make_self_communicator();
  Loaded loaded(*self, folder, 0);
  const ProbeInput input =
      read_probe_input(loaded.context, folder + "/golden.safetensors", loaded.decoder.config().vocab_size);
  const Tensor ids = probe_rows(loaded.context, input, 0, 1).input_ids;  // [2, length]
  const int64_t length = ids.dim(1);
  const std::vector<Interval> ranges{{0, length}, {length, length + 15}, {length + 3, 2 * length}};
  DecoderCache cache = loaded.decoder.make_cache(loaded.context, length, DType::f32, 3);
  std::vector<int64_t> held(ranges.size());
  for (int64_t step = 0; step < length; ++step) {
    std::vector<NextTokens> next;
    for (size_t i = 0; i < ranges.size(); ++i) {
      const int64_t left = ranges[i].size() - held[i], count = std::min(left, 1 + (step + static_cast<int64_t>(i)) % 3);
      if (count == 0 || step % 4 == static_cast<int64_t>(i)) continue;
      const int64_t begin = ranges[i].begin + held[i];
      next.push_back({static_cast<int64_t>(i), ids.flat(begin, begin + count).span<int32_t>()});
      held[i] += count;
    }
    if (next.empty()) continue;
    const Tensor logits = loaded.decoder.next_logits(loaded.context, next, cache);
    for (size_t n = 0; n < next.size(); ++n) {
      const auto sequence = static_cast<size_t>(next[n].sequence);
      const int64_t begin = ranges[sequence].begin, count = held[sequence], row = static_cast<int64_t>(n);
      const Tensor all =
          loaded.decoder.logits(loaded.context, {ids.flat(begin, begin + count).reshape({1, count}), {}});
      EXPECT_LE(test::difference(logits.slice(row, row + 1), all.slice(count - 1, count)).max_abs, 1e-4)
          << "sequence " << sequence << " of " << count;
    }
  }
  EXPECT_THAT(held, ::testing::ElementsAre(length, 15, length - 3));
}

std::string test_name(const ::testing::TestParamInfo<const char*>& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '/', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Families, GoldenLayouts,
                         ::testing::Values("open/llama", "open/llama_gqa", "open/gpt2", "open/gpt2_untied",
                                           "loader/llama_gqa_bf16_sharded", "loader/gpt2_hub_names"),
                         test_name);
INSTANTIATE_TEST_SUITE_P(Families, Golden, ::testing::ValuesIn(test::kGoldenFamilies), test_name);

/// The golden batch with its first row once more, all of whose labels are ignored but some: three rows.
TEST(Probe, three_rows_over_two_and_four_ranks_equal_one_rank) {
  const std::string folder = golden_folder("open/llama_gqa");
  const auto run = [&](int count, int stage) {
    ProbeOutput result;
    run_ranks(count, [&](Communicator& ranks) {
      Loaded loaded(ranks, folder, stage);
      const ProbeInput two = read_probe_input(loaded.context, folder + "/golden.safetensors", 256);
      ProbeInput three{loaded.context.empty({3, 24}, DType::i64), loaded.context.empty({3, 24}, DType::i64)};
      for (int64_t i = 0; i < 72; ++i) {
        three.ids.data<int64_t>()[i] = two.ids.data<int64_t>()[i % 48];
        three.labels.data<int64_t>()[i] = i % 5 == 3 ? -100 : two.labels.data<int64_t>()[i % 48];
      }
      ProbeOutput output = probe(loaded.model, loaded.decoder, three, true);
      if (ranks.rank() == 0) result = std::move(output);
    });
    return result;
  };
  const ProbeOutput one = run(1, 0);
  for (const Layout layout : std::vector<Layout>{{2, 0}, {2, 1}, {2, 2}, {2, 3}, {4, 3}}) {
    const ProbeOutput other = run(layout.ranks, layout.stage);
    ASSERT_EQ(other.size(), one.size());
    for (size_t i = 0; i < one.size(); ++i)
      EXPECT_LE(test::difference(other[i].second, one[i].second).relative_l2, 1e-5)
          << one[i].first << " at " << layout.ranks << " ranks, stage " << layout.stage;
  }
}

class GoldenTraining : public ::testing::TestWithParam<const char*> {};

TEST_P(GoldenTraining, five_adamw_steps_follow_torch) {
  const std::string folder = golden_folder(GetParam());
  for (const Layout layout : std::vector<Layout>{{1, 0}, {2, 0}, {2, 1}, {2, 2}, {2, 3}, {4, 2}, {4, 3}}) {
    SCOPED_TRACE(fmt::format("{} ranks, stage {}", layout.ranks, layout.stage));
    run_ranks(layout.ranks, [&](Communicator& ranks) {
      Loaded loaded(ranks, folder, layout.stage,
                    {.method = AdamOptions{.beta1 = 0.9, .beta2 = 0.95}, .weight_decay = 0.1, .decay_all = true});
      const ProbeInput input = read_probe_input(loaded.context, folder + "/golden.safetensors", 256);
      const Batch rows = probe_rows(loaded.context, input, ranks.rank(), ranks.size());
      const SafetensorsFile golden(folder + "/golden_train.safetensors");
      const auto load = [&](const std::string& name) { return golden.load(name, *loaded.context.memory); };
      const std::vector<double> losses = load("loss").to_vector<double>(),
                                norms = load("grad_norm").to_vector<double>();
      const auto expect_parameters = [&](const std::string& prefix) {
        for (size_t i = 0; i < loaded.decoder.units().size(); ++i)
          loaded.model.with_parameters(i, [&](const Parameter& parameter, const Tensor& have) {
            const Tensor want = load(prefix + parameter.name);
            if (!test::is_gpt2_attention_bias(parameter.name)) {
              EXPECT_LE(test::difference(have, want).max_abs, 1e-4) << parameter.name;
              return;
            }
            const int64_t third = have.numel() / 3;  // q, k, v; Adam normalises the noise of the key part
            for (int64_t part = 0; part < 3; ++part)
              EXPECT_LE(test::difference(have.flat(part * third, (part + 1) * third),
                                         want.flat(part * third, (part + 1) * third))
                            .max_abs,
                        part == 1 ? 5e-3 : 1e-4)
                  << parameter.name << " part " << part;
          });
      };
      Engine engine(loaded.model);
      for (size_t step = 0; step < 5; ++step) {
        const StepResult result = engine.step(std::span(&rows, 1), count_targets(input), 1e-3, 1.0);
        EXPECT_NEAR(result.loss, losses[step], 1e-5) << step;
        EXPECT_NEAR(result.grad_norm, norms[step], 1e-5 * norms[step]) << step;
        if (step == 0) expect_parameters("param_step1.");
      }
      expect_parameters("param.");
      EXPECT_NEAR(engine.evaluate(std::span(&rows, 1), count_targets(input)), load("loss_after").item(), 1e-5);
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Families, GoldenTraining, ::testing::Values("open/llama", "open/gpt2"),
                         [](const auto& info) { return std::string(info.param).substr(5); });

}  // namespace
}  // namespace nought::golden_test
