// What is generated has the bits of what is trained: the logits of a token depend on the tokens before it alone, not on
// the batch that its sequence is in, on the parts that a prompt comes in, or on the cache.
#include <algorithm>
#include <string>
#include <vector>

#include "support/golden_case.h"
#include "support/size.h"

#include "nought/infer/generate.h"

namespace nought::generation_bits_test {
namespace {

using test::golden_folder;
using test::GoldenCase;
using test::TrainingRank;

/// What a layer's state is computed by: chunks of 64 tokens in a sequence, step by step from a cache.
double tolerance(const ModelConfig& config, DType dtype) {
  if (!config.keeps_states()) return 0;
  return dtype == DType::bf16 ? 0.1 : 1e-4;
}

/// Feeds a sequence in parts of `part` tokens, with `others` sequences of other tokens beside it, and expects behind
/// every part the logits that the tokens so far have as a sequence.
void expect_bits_of_whole(TrainingRank& rank, const Tensor& ids, DType dtype, int64_t part, int64_t others) {
  const int64_t length = ids.numel(), vocab = rank.decoder.config().vocab_size, place = others / 2;
  DecoderCache cache = rank.decoder.make_cache(rank.context, 2 * length, dtype, 1 + others);
  const std::vector<int32_t> tokens(ids.span<int32_t>().begin(), ids.span<int32_t>().end());
  const std::span<const int32_t> all(tokens);
  for (int64_t held = 0; held < length;) {
    const int64_t count = std::min(part, length - held);
    std::vector<NextTokens> next;
    for (int64_t i = 0; i < others; ++i) next.push_back({1 + i, all.subspan(static_cast<size_t>(i % length), 1)});
    next.insert(next.begin() + place, {0, all.subspan(static_cast<size_t>(held), static_cast<size_t>(count))});
    const Tensor logits = rank.decoder.next_logits(rank.context, next, cache);
    held += count;
    const Tensor whole = rank.decoder.logits(rank.context, {ids.flat(0, held).reshape({1, held}), {}});
    EXPECT_LE(test::difference(logits.slice(place, place + 1), whole.flat((held - 1) * vocab, held * vocab)).max_abs,
              tolerance(rank.decoder.config(), dtype))
        << rank.of.str() << ", behind " << held << " tokens in parts of " << part << ", " << others << " beside it";
  }
}

class GenerationBits : public ::testing::TestWithParam<const char*> {};

NOUGHT_SIZE(medium);
TEST_P(GenerationBits, do_not_depend_on_the_batch_the_parts_of_a_prompt_or_the_cache) {
  for (const DType dtype : {DType::bf16, DType::f32})
    for (const int tensor : {1, 2}) {
      if (dtype == DType::f32 && tensor == 1) continue;                                           // golden_test has it
      if (ModelConfig::from_folder(golden_folder(GetParam())).num_heads % tensor != 0) continue;  // cannot be shared
      const GoldenCase each{.folder = golden_folder(GetParam()), .mesh = {.sizes = {.tensor = tensor}}};
      each.training().in(dtype).on_ranks([&](TrainingRank& rank) {
        const ProbeInput input = read_probe_input(rank.context, each.golden(), rank.decoder.config().vocab_size);
        const Tensor ids = probe_rows(rank.context, input, 0, 1).input_ids.slice(0, 1);
        for (const auto& [part, others] : {std::pair<int64_t, int64_t>{1, 6}, {16, 0}, {ids.numel(), 31}})
          expect_bits_of_whole(rank, ids, dtype, part, others);
      });
    }
}

/// Keeps what a generator says of its tokens.
struct Kept final : TokenSink {
  std::vector<std::vector<float>> log_probabilities = std::vector<std::vector<float>>(3);

  bool on_token(size_t, int32_t) override { return true; }
  bool wants_log_probabilities() const override { return true; }
  void on_log_probability(size_t prompt, float value) override { log_probabilities.at(prompt).push_back(value); }
};

TEST(LogProbabilities, are_those_that_a_probe_gives_the_same_tokens) {
  const GoldenCase each{.folder = golden_folder("open/qwen3_moe")};
  each.training().in(DType::bf16).on_ranks([&](TrainingRank& rank) {
    const std::vector<std::vector<int32_t>> prompts{{3, 1, 4}, {1, 5, 9, 2, 6, 5, 3, 5}, {8}};
    Kept kept;
    const GenerateOptions options{.max_new_tokens = 7, .batch = 2, .sampling = {.repetition_penalty = 1.3}};
    const auto replies = generate(rank.decoder, rank.context, DType::bf16, prompts, options, kept);
    for (size_t i = 0; i < prompts.size(); ++i) {
      std::vector<int64_t> ids(prompts[i].begin(), prompts[i].end());
      ids.insert(ids.end(), replies[i].begin(), replies[i].end());
      const Tensor row = Tensor::of<int64_t>(*rank.context.memory, {1, std::ssize(ids)}, ids);
      const ProbeInput input{row, row};
      const ProbeOutput output = nought::probe(rank.model, rank.decoder, input, false);
      const auto all = label_log_probabilities(rank.context, input, output[0].second).to_vector<float>();
      ASSERT_EQ(output[0].first, "logits");
      ASSERT_EQ(replies[i].size(), 7u);
      EXPECT_EQ(kept.log_probabilities[i],
                std::vector<float>(all.begin() + std::ssize(prompts[i]) - 1, all.begin() + std::ssize(ids) - 1));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Families, GenerationBits, ::testing::ValuesIn(test::kGoldenFamilies),
                         test::name_of_folder<const char*>);
INSTANTIATE_TEST_SUITE_P(Options, GenerationBits, ::testing::ValuesIn(test::kGoldenOptions),
                         test::name_of_folder<const char*>);

}  // namespace
}  // namespace nought::generation_bits_test
