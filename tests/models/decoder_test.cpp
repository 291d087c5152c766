// What a Decoder declares and keeps; what it computes is compared with transformers in train/golden_test.
#include "nought/models/decoder.h"

#include "support/golden.h"
#include "support/local_store.h"
#include "support/tiny_llama.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nought::decoder_test {
namespace {

using testing::ElementsAre;

TEST(Decoder, its_units_are_the_embedding_the_blocks_and_the_head) {
  const Decoder decoder(test::tiny_llama(3));
  std::vector<std::string> names;
  for (const auto& unit : decoder.units()) names.push_back(unit->name());
  EXPECT_THAT(names, ElementsAre("embedding", "block.0", "block.1", "block.2", "head"));
}

TEST(Decoder, declares_as_many_parameters_as_its_config_counts) {
  for (const char* name : test::kGoldenFamilies) {
    const ModelConfig config = ModelConfig::from_folder(test::golden_folder(name));
    EXPECT_EQ(Decoder(config).parameter_count(), config.parameter_count()) << name;
  }
}

TEST(Decoder, a_tied_head_borrows_the_embedding) {
  ModelConfig config = test::tiny_llama();
  EXPECT_TRUE(Decoder(config).units().back()->borrowed().empty());
  config.tie_word_embeddings = true;
  const Decoder tied(config);
  EXPECT_THAT(tied.units().back()->borrowed(), ElementsAre(tied.units().front().get()));
  EXPECT_EQ(Decoder(test::tiny_llama()).parameter_count() - tied.parameter_count(), 256 * 16);
}

struct Loaded {
  explicit Loaded(const ModelConfig& config) : decoder(config), store(context, decoder.units(), DType::f64) {}
  Batch batch(std::vector<int32_t> ids, std::vector<int32_t> targets) const {
    const Shape shape{1, static_cast<int64_t>(ids.size())};
    return {Tensor::of<int32_t>(*context.memory, shape, ids), Tensor::of<int32_t>(*context.memory, shape, targets)};
  }
  double loss(const Batch& batch) {
    Tape tape(context, false);
    return decoder.loss(tape, batch, 1).value.item();
  }
  Context context = Context::reference();
  Decoder decoder;
  test::LocalStore store;
};

TEST(Decoder, its_loss_is_what_its_objective_makes_of_the_logits) {
  Loaded loaded(test::tiny_llama());
  Batch batch = loaded.batch({5, 6, 7}, {6, 7, 8});
  const double first = loaded.loss(loaded.batch({5, 6, 7}, {6, kIgnoredTarget, kIgnoredTarget}));
  const double rest = loaded.loss(batch) - first;
  batch.weights = Tensor::of<float>(*loaded.context.memory, {1, 3}, std::vector<float>{3, 0.5, 0.5});
  EXPECT_NEAR(loaded.loss(batch), 3 * first + 0.5 * rest, 1e-9);

  struct Sevens final : Objective {
    RowLoss rows(const Batch&) const override {
      return [](const Context& context, const LogitRows& rows) { context.run(Fill{.x = rows.losses, .value = 7}); };
    }
    double weight(const Batch&) const override { return 1; }
  };
  loaded.decoder.set_objective(std::make_shared<Sevens>());
  EXPECT_EQ(loaded.loss(batch), 21);
}

TEST(Decoder, ignored_targets_add_nothing_to_the_loss) {
  Loaded loaded(test::tiny_llama());
  const double first = loaded.loss(loaded.batch({5, 6, 7}, {6, kIgnoredTarget, kIgnoredTarget}));
  const double rest = loaded.loss(loaded.batch({5, 6, 7}, {kIgnoredTarget, 7, 8}));
  EXPECT_NEAR(loaded.loss(loaded.batch({5, 6, 7}, {6, 7, 8})), first + rest, 1e-9);
  EXPECT_EQ(loaded.loss(loaded.batch({5}, {kIgnoredTarget})), 0);
}

TEST(Decoder, a_token_sees_nothing_behind_it) {
  Loaded loaded(test::tiny_llama());
  const Tensor all = loaded.decoder.logits(loaded.context, loaded.batch({5, 6, 7, 8}, {0, 0, 0, 0}));
  const Tensor other = loaded.decoder.logits(loaded.context, loaded.batch({5, 6, 9, 9}, {0, 0, 0, 0}));
  EXPECT_EQ(all.slice(0, 2).to_vector<double>(), other.slice(0, 2).to_vector<double>());
  EXPECT_NE(all.slice(2, 3).to_vector<double>(), other.slice(2, 3).to_vector<double>());
}

TEST(Decoder, a_cache_goes_on_and_forgets) {
  Loaded loaded(test::tiny_llama());
  DecoderCache cache = loaded.decoder.make_cache(loaded.context, 8, DType::f64, 2);
  const std::vector<int32_t> begin{5, 6, 7}, next{8};
  const auto feed = [&](int64_t sequence, const std::vector<int32_t>& ids) {
    const NextTokens tokens{sequence, ids};
    return loaded.decoder.next_logits(loaded.context, std::span(&tokens, 1), cache).to_vector<double>();
  };
  feed(1, begin);
  const std::vector<double> after = feed(1, next);
  EXPECT_THAT(cache.ids[1], ElementsAre(5, 6, 7, 8));
  EXPECT_TRUE(cache.ids[0].empty());
  EXPECT_EQ(loaded.decoder.keep_first(cache, 1, 3), 3);
  EXPECT_EQ(feed(1, next), after) << "as if it had not been fed before";
  const Tensor whole = loaded.decoder.logits(loaded.context, loaded.batch({5, 6, 7, 8}, {0, 0, 0, 0}));
  const std::vector<double> last = whole.slice(3, 4).to_vector<double>();
  for (size_t i = 0; i < last.size(); ++i) ASSERT_NEAR(after[i], last[i], 1e-9);
}

}  // namespace
}  // namespace nought::decoder_test
