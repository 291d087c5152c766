// A sequence that is too long for one rank trains on ranks that share it, within the peak that was predicted.
#include <algorithm>

#include "support/agreement.h"
#include "support/size.h"
#include "support/sweep.h"
#include <gtest/gtest.h>

namespace nought::long_sequences_test {
namespace {

NOUGHT_FILE_SIZE(medium);

ModelConfig narrow_model() {
  return ModelConfig::from_json({{"model_type", "llama"},
                                 {"vocab_size", 512},
                                 {"hidden_size", 64},
                                 {"intermediate_size", 172},
                                 {"num_hidden_layers", 2},
                                 {"num_attention_heads", 4},
                                 {"num_key_value_heads", 2},
                                 {"max_position_embeddings", 1 << 17}});
}

Layout layout_of(int context, ContextMethod method, int64_t length) {
  Layout layout{.ranks = context,
                .zero_stage = 3,
                .context_ranks = context,
                .context_method = method,
                .micro_batch = 1,
                .seq_length = length,
                .sharding = {.dtype = DType::bf16},
                .wire = Wire::threads};
  layout.recompute.mode = Recompute::full;
  return layout;
}

/// The highest peak of all ranks in two steps.
int64_t highest_peak(const Layout& layout) {
  std::vector<int64_t> peaks(static_cast<size_t>(layout.ranks));
  run_ranks(layout.ranks, [&](Communicator& ranks, const Context& context) {
    const Mesh mesh(ranks, layout.grid());
    Decoder decoder(narrow_model(), layout.recompute, {}, ModelRanks(mesh, false, {}, layout.context_method));
    ShardedModel::Options options = layout.sharding;
    options.policy = Policy::stage(layout.zero_stage);
    ShardedModel model(context, mesh, decoder, options);
    Engine engine(model);
    for (int step = 0; step < 2; ++step) {
      const Batch batch = empty_batch(1, layout.seq_length, *context.memory);
      context.zero(batch.input_ids), context.zero(batch.targets);
      EXPECT_TRUE(engine.step(std::span(&batch, 1), layout.tokens_per_step(), 1e-3, 1).finite());
    }
    model.settle();
    peaks[static_cast<size_t>(ranks.rank())] = peaks_of(*context.memory).peak_total;
  });
  return *std::max_element(peaks.begin(), peaks.end());
}

/// 65,536 tokens with NOUGHT_LONG.
TEST(LongSequences, four_ranks_train_one_within_the_predicted_peak) {
  const int64_t length = test::runs_everything() ? 65536 : 4000;
  const int64_t alone = predict(narrow_model(), layout_of(1, ContextMethod::ring, length)).memory.peak_total;
  for (const ContextMethod method : {ContextMethod::ring, ContextMethod::gather, ContextMethod::heads}) {
    SCOPED_TRACE(name_of(method));
    for (const int64_t tiles : {1, 0}) {
      Layout layout = layout_of(4, method, length);
      layout.recompute.mlp_tiles = tiles;
      const int64_t predicted = predict(narrow_model(), layout).memory.peak_total, peak = highest_peak(layout);
      EXPECT_LE(static_cast<double>(peak), 1.02 * static_cast<double>(predicted)) << layout.recompute.str();
      EXPECT_LT(static_cast<double>(peak), 0.5 * static_cast<double>(alone)) << "of one rank";
      const char* how = tiles == 1 ? "" : "_tiled";
      RecordProperty(fmt::format("peak_{}{}", name_of(method), how), static_cast<int>(peak / test::kMiB));
    }
  }
}

}  // namespace
}  // namespace nought::long_sequences_test
