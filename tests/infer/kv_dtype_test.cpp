// Caches whose keys and values are kept in another dtype than the model computes in.
#include <map>

#include "support/golden.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/comm/communicator.h"
#include "nought/infer/generate.h"
#include "nought/kernels/isa.h"
#include "nought/nn/kv_cache.h"
#include "nought/weights/hf_folder.h"
#include "nought/zero/sharded_model.h"

namespace nought::kv_dtype_test {
namespace {

using ::testing::FloatNear;
using ::testing::HasSubstr;
using ::testing::Pointwise;
using ::testing::ThrowsMessage;

struct Loaded {
  explicit Loaded(const std::string& name, DType dtype = DType::bf16)
      : folder(test::golden_folder(name)),
        decoder(ModelConfig::from_folder(folder)),
        self(make_self_communicator()),
        model(context, *self, decoder, {.dtype = dtype, .training = false}) {
    model.load(HfWeights(folder, decoder));
  }
  std::vector<int32_t> tokens(int64_t count) const {
    std::vector<int32_t> ids(static_cast<size_t>(count));
    for (size_t i = 0; i < ids.size(); ++i)
      ids[i] = static_cast<int32_t>((7 * i * i + 3 * i + 5) % static_cast<size_t>(decoder.config().vocab_size));
    return ids;
  }
  /// The logits of every token, computed as one sequence without a cache.
  Tensor whole(const std::vector<int32_t>& ids) {
    const Tensor row = Tensor::of<int32_t>(*context.memory, {1, std::ssize(ids)}, ids);
    return decoder.logits(context, {row, {}});
  }
  std::string folder;
  Context context = Context::cpu();
  Decoder decoder;
  std::unique_ptr<Communicator> self;
  ShardedModel model;
};

std::vector<float> row_of(const Tensor& logits, int64_t row) { return logits.slice(row, row + 1).to_vector<float>(); }

class KvDtype : public ::testing::TestWithParam<const char*> {};

/// Whole, in parts and one by one, alone and beside others, and as evaluate_as_cached() computes them.
TEST_P(KvDtype, logits_do_not_depend_on_the_parts_of_a_prompt_or_the_batch) {
  for (const DType kept : {DType::i8, DType::u8, DType::f32}) {
    Loaded loaded(GetParam());
    const std::vector<int32_t> ids = loaded.tokens(37);
    const std::span<const int32_t> all(ids);
    const Tensor dense = loaded.whole(ids);
    loaded.decoder.evaluate_as_cached(kept);
    const Tensor whole = loaded.whole(ids);
    if (kept == DType::f32 && !has_bf16_units()) {
      EXPECT_EQ(whole.to_vector<float>(), dense.to_vector<float>()) << "fp32 holds what was bf16";
    } else if (kept == DType::f32) {  // units for bf16 round what is multiplied with keys and values, fp32 does not
      EXPECT_THAT(whole.to_vector<float>(), Pointwise(FloatNear(0.15F), dense.to_vector<float>()));
    } else {
      EXPECT_NE(whole.to_vector<float>(), dense.to_vector<float>());
    }
    for (const auto& [part, others] : {std::pair<size_t, int64_t>{1, 0}, {1, 3}, {16, 1}, {37, 2}}) {
      DecoderCache cache = loaded.decoder.make_cache(loaded.context, 64, DType::bf16, 1 + others, kept);
      for (size_t held = 0; held < ids.size();) {
        const size_t count = std::min(part, ids.size() - held);
        std::vector<NextTokens> next;
        for (int64_t i = 0; i < others; ++i) next.push_back({1 + i, all.subspan(held, 1)});
        next.push_back({0, all.subspan(held, count)});
        const Tensor logits = loaded.decoder.next_logits(loaded.context, next, cache);
        held += count;
        ASSERT_EQ(row_of(logits, others), row_of(whole, static_cast<int64_t>(held) - 1))
            << name_of(kept) << " behind " << held << " in parts of " << part << ", " << others << " beside it";
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, KvDtype,
                         ::testing::Values("open/llama_gqa", "open/gemma2", "open/deepseek_v3", "open/gpt_oss"),
                         [](const auto& each) {
                           const std::string name = each.param;
                           return name.substr(name.find('/') + 1);
                         });

/// Per token and layer: codes of a byte, and a scale of fp32 for each head of keys and of values.
TEST(KvCache, takes_the_bytes_of_its_dtype) {
  Loaded loaded("open/llama_gqa");
  const ModelConfig& config = loaded.decoder.config();
  const MemoryLedger& ledger = loaded.context.memory->ledger();
  const PackedHeads heads{
      .num_heads = config.num_heads, .num_kv_heads = config.num_kv_heads, .head_dim = config.head_dim};
  const int64_t elements = 2 * config.num_kv_heads * config.head_dim, scales = 2 * config.num_kv_heads * 4;
  const std::map<DType, int64_t> bytes{{DType::bf16, 2 * elements},
                                       {DType::f16, 2 * elements},
                                       {DType::f32, 4 * elements},
                                       {DType::i8, elements + scales},
                                       {DType::u8, elements + scales}};
  for (const auto& [kept, of_token] : bytes) {
    EXPECT_EQ(kv_cache_bytes(heads, kept), of_token);
    const DecoderCache cache = loaded.decoder.make_cache(loaded.context, 64, DType::bf16, 3, kept);
    EXPECT_EQ(ledger.current(Category::kv_cache), config.num_layers * 3 * 64 * of_token) << name_of(kept);
  }
  EXPECT_EQ(ledger.current(Category::kv_cache), 0);
}

TEST(KvCache, of_prompts_that_begin_alike_is_copied_with_its_scales) {
  struct Silent final : TokenSink {
    bool on_token(size_t, int32_t) override { return true; }
  } silent;
  Loaded loaded("open/llama_gqa");
  const std::vector<int32_t> common = loaded.tokens(20);
  std::vector<std::vector<int32_t>> prompts(3, common);
  for (size_t i = 0; i < prompts.size(); ++i) prompts[i].push_back(static_cast<int32_t>(i));
  for (const DType kept : {DType::i8, DType::u8, DType::f16}) {
    const GenerateOptions options{.max_new_tokens = 9, .batch = 3, .kv_dtype = kept, .sampling = {.temperature = 0}};
    const auto together = generate(loaded.decoder, loaded.context, DType::bf16, prompts, options, silent);
    for (size_t i = 0; i < prompts.size(); ++i)
      EXPECT_EQ(generate(loaded.decoder, loaded.context, DType::bf16, std::span(&prompts[i], 1), options, silent)[0],
                together[i]);
  }
}

TEST(KvCache, has_the_dtypes_that_are_named) {
  EXPECT_EQ(kv_dtype_named("fp8"), DType::u8);
  EXPECT_EQ(kv_dtype_named("int8"), DType::i8);
  EXPECT_EQ(kv_dtype_named("bf16"), DType::bf16);
  EXPECT_THAT([] { kv_dtype_named("q4_0"); },
              ThrowsMessage<ConfigError>(HasSubstr("--kv-dtype q4_0: expected bf16, f16, f32, fp8 or int8")));
}

}  // namespace
}  // namespace nought::kv_dtype_test
