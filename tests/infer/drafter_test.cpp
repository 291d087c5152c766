// Speculative decoding: what is guessed, and that no guess changes what a request gets.
#include "nought/infer/drafter.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <random>

#include "support/golden.h"
#include "support/size.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/comm/communicator.h"
#include "nought/grammar/gbnf_grammar.h"
#include "nought/infer/inference_engine.h"
#include "nought/infer/model_drafter.h"
#include "nought/weights/hf_folder.h"
#include "nought/zero/sharded_model.h"

namespace nought::drafter_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::ThrowsMessage;

std::vector<int32_t> look_up(const std::vector<int32_t>& ids, int64_t most) { return look_up_continuation(ids, most); }

TEST(Lookup, the_latest_of_the_longest_occurrences_goes_on) {
  EXPECT_THAT(look_up({1, 2, 3, 4, 2, 3}, 2), ElementsAre(4, 2));
  EXPECT_THAT(look_up({7, 1, 2, 9, 8, 1, 2, 5, 7, 1, 2}, 1), ElementsAre(9)) << "three tokens agree, not two";
  EXPECT_THAT(look_up({1, 2, 9, 1, 2, 5, 1, 2}, 1), ElementsAre(5)) << "the later one";
  EXPECT_THAT(look_up({1, 2, 3, 4, 2, 3}, 8), ElementsAre(4, 2, 3, 4, 2, 3, 4, 2))
      << "beyond the end it repeats itself";
  EXPECT_THAT(look_up({4, 4, 4}, 3), ElementsAre(4, 4, 4));
  EXPECT_THAT(look_up({1, 2, 3, 4, 3}, 3), IsEmpty()) << "one token is too little";
  EXPECT_THAT(look_up({5}, 3), IsEmpty());
}

struct Loaded {
  explicit Loaded(const std::string& name)
      : folder(test::golden_folder(name)),
        decoder(ModelConfig::from_folder(folder)),
        self(make_self_communicator()),
        model(context, *self, decoder, {.training = false}) {
    model.load(HfWeights(folder, decoder));
  }
  std::string folder;
  Context context = Context::cpu();
  Decoder decoder;
  std::unique_ptr<Communicator> self;
  ShardedModel model;
};

struct Heard final : RequestListener {
  explicit Heard(int64_t most) : most(most) {}
  bool on_token(const ScoredToken& token) override {
    tokens.push_back(token.id);
    log_probabilities.push_back(token.log_probability);
    return std::ssize(tokens) < most;
  }
  void on_end(FinishReason why, std::exception_ptr) override { reason = why; }
  int64_t most;  // it stops then, as at a stop string
  std::vector<int32_t> tokens;
  std::vector<float> log_probabilities;
  std::optional<FinishReason> reason;
};

/// Knows how the texts of some requests go on, and is wrong at random.
class KnowingDrafter final : public Drafter {
 public:
  /// right: of so many guessed tokens one is wrong; 0: none.
  explicit KnowingDrafter(unsigned right) : right_(right) {}
  void learn(std::vector<int32_t> text) { texts_.push_back(std::move(text)); }
  std::vector<std::vector<int32_t>> guess(std::span<const DraftRequest> requests) override {
    std::vector<std::vector<int32_t>> guesses;
    for (const DraftRequest& each : requests) guesses.push_back(guess_one(each));
    return guesses;
  }

 private:
  std::vector<int32_t> guess_one(const DraftRequest& request) {
    std::vector<int32_t> guess;
    for (const std::vector<int32_t>& text : texts_) {
      if (text.size() < request.ids.size() ||
          !std::ranges::equal(std::span(text).first(request.ids.size()), request.ids))
        continue;
      for (size_t at = request.ids.size(); at < text.size() && std::ssize(guess) < request.most; ++at)
        guess.push_back(right_ > 0 && random_() % right_ == 0 ? 3 : text[at]);
      break;
    }
    return guess;
  }
  unsigned right_;
  std::mt19937 random_{11};
  std::vector<std::vector<int32_t>> texts_;
};

/// Digits and pluses, over a vocabulary of which each token is a byte.
TokenConstraint sums(const Tokenizer& bytes) {
  Grammar grammar;
  const Grammar::Rule root = grammar.declare();
  grammar.define(root, gbnf_expression(grammar, "root ::= [0-9]+ (\"+\" [0-9]+)*"));
  grammar.finish(root);
  return TokenConstraint(std::make_shared<TokenMasks>(std::move(grammar), std::make_shared<const TokenBytes>(bytes)));
}

struct Case {
  InferenceRequest request;
  int64_t most = 1 << 20;
};

/// Prompts that quote themselves; greedy and sampled, with penalties, ends of every kind, and a grammar.
std::vector<Case> cases(int64_t vocab_size, const Tokenizer* bytes) {
  std::mt19937 random(5);
  const auto upto = [&](int64_t most) { return static_cast<int64_t>(random() % static_cast<unsigned>(most)); };
  std::vector<Case> cases(8);
  for (size_t i = 0; i < cases.size(); ++i) {
    InferenceRequest& request = cases[i].request;
    for (int k = 0; k < 8; ++k) request.prompt.push_back(static_cast<int32_t>(upto(vocab_size)));
    request.prompt.insert(request.prompt.end(), request.prompt.begin(), request.prompt.begin() + 5);
    request.max_new_tokens = 4 + upto(20);
    request.likeliest = 0;
    request.sampling = {.temperature = i % 2 == 0 ? 0.0 : 0.9, .top_p = 0.95, .seed = static_cast<uint64_t>(i / 4)};
    if (i % 4 >= 2) request.sampling.repetition_penalty = 1.2, request.sampling.frequency_penalty = 0.3;
  }
  cases[1].most = 3;
  cases[4].request.max_new_tokens = 60;  // beyond the capacity
  cases[5].request.stop_ids = {7, 90, 91, 92, 93, 94, 95, 96, 97, 98};
  cases[6].request.min_new_tokens = 4;
  if (bytes)
    for (const size_t i : {2, 3}) cases[i].request.constraint = sums(*bytes);
  return cases;
}

/// What the requests get from an engine with this drafter.
std::vector<std::shared_ptr<Heard>> run(Loaded& loaded, const std::vector<Case>& cases,
                                        std::shared_ptr<Drafter> drafter, std::optional<DType> kv_dtype,
                                        SpeculationCounts* counts = nullptr) {
  InferenceEngine engine(loaded.decoder, loaded.context, DType::f32,
                         {.capacity = 40,
                          .sequences = 3,
                          .max_batch_tokens = 24,
                          .kv_dtype = kv_dtype,
                          .speculation = {std::move(drafter), 5}});
  std::vector<std::shared_ptr<Heard>> heard;
  for (const Case& each : cases) {
    heard.push_back(std::make_shared<Heard>(each.most));
    engine.submit(each.request, heard.back());
    engine.step();
  }
  while (engine.step()) continue;
  if (counts) *counts = engine.counts().speculated;
  return heard;
}

class SpeculationFamily : public ::testing::TestWithParam<const char*> {};

NOUGHT_SIZE(medium);
TEST_P(SpeculationFamily, guesses_change_no_token) {
  Loaded loaded(GetParam());
  const std::unique_ptr<Tokenizer> bytes = make_tokenizer("bytes");
  const int64_t vocab_size = loaded.decoder.config().vocab_size;
  const auto all = cases(vocab_size, vocab_size == bytes->vocab_size() ? bytes.get() : nullptr);
  for (const std::optional<DType> kv_dtype : {std::optional<DType>(), std::optional(DType::i8)}) {
    const auto plain = run(loaded, all, nullptr, kv_dtype);
    for (const unsigned right : {0, 2, 4}) {
      const auto knows = std::make_shared<KnowingDrafter>(right);
      for (size_t i = 0; i < all.size(); ++i) {
        std::vector<int32_t> text = all[i].request.prompt;
        text.insert(text.end(), plain[i]->tokens.begin(), plain[i]->tokens.end());
        text.insert(text.end(), 3, 6);  // it goes on where the answer has ended
        knows->learn(std::move(text));
      }
      const bool looks_up = right == 4;
      SpeculationCounts counts;
      const auto guessed =
          run(loaded, all, looks_up ? std::shared_ptr<Drafter>(std::make_shared<LookupDrafter>()) : knows, kv_dtype,
              &counts);
      EXPECT_GT(counts.guessed, counts.accepted);
      EXPECT_TRUE(looks_up || counts.accepted > 0);
      EXPECT_GE(counts.guessed, counts.drafts);
      EXPECT_EQ(std::accumulate(counts.accepted_at.begin(), counts.accepted_at.end(), int64_t{0}), counts.accepted);
      EXPECT_TRUE(std::ranges::is_sorted(counts.accepted_at, std::greater())) << "a wrong guess ends its draft";
      for (size_t i = 0; i < all.size(); ++i) {
        EXPECT_EQ(guessed[i]->tokens, plain[i]->tokens) << "request " << i << ", drafter " << right;
        EXPECT_EQ(guessed[i]->log_probabilities, plain[i]->log_probabilities);
        EXPECT_EQ(guessed[i]->reason, plain[i]->reason);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, SpeculationFamily,
                         ::testing::Values("open/llama", "open/mistral", "open/deepseek_v2"),
                         [](const auto& info) { return std::string(info.param).substr(5); });

/// The model itself guesses, and is right nearly always; and one that is mostly wrong.
TEST(ModelDrafter, a_model_that_guesses_changes_no_token) {
  Loaded loaded("open/llama");
  const auto all = cases(256, nullptr);
  const auto plain = run(loaded, all, nullptr, {});
  for (const char* name : {"open/llama", "open/gpt2"}) {
    Loaded draft(name);
    const auto drafter = std::make_shared<ModelDrafter>(draft.decoder, draft.context, DType::f32,
                                                        CacheOptions{.capacity = 38, .sequences = 3});
    SpeculationCounts counts;
    const auto guessed = run(loaded, all, drafter, {}, &counts);
    for (size_t i = 0; i < all.size(); ++i) EXPECT_EQ(guessed[i]->tokens, plain[i]->tokens) << name << " " << i;
    EXPECT_GT(counts.guessed, 0);
    if (draft.folder == loaded.folder) {
      EXPECT_GT(10 * counts.accepted, 8 * counts.guessed) << "it draws with the same seeds and positions";
    } else {
      EXPECT_LT(2 * counts.accepted, counts.guessed);
    }
  }
}

TEST(Speculation, right_guesses_save_steps) {
  Loaded loaded("open/llama");
  const InferenceRequest request{.prompt = {5, 9, 200}, .max_new_tokens = 16, .sampling = {.temperature = 0}};
  const auto plain = run(loaded, {{request}}, nullptr, {});
  const auto knows = std::make_shared<KnowingDrafter>(0);
  std::vector<int32_t> text = request.prompt;
  text.insert(text.end(), plain[0]->tokens.begin(), plain[0]->tokens.end());
  knows->learn(text);
  InferenceEngine engine(loaded.decoder, loaded.context, DType::f32,
                         {.capacity = 40, .sequences = 1, .speculation = {knows, 4}});
  const auto heard = std::make_shared<Heard>(1 << 20);
  engine.submit(request, heard);
  int64_t steps = 0;
  while (engine.step()) ++steps;
  EXPECT_EQ(heard->tokens, plain[0]->tokens);
  EXPECT_EQ(steps, 1 + 3) << "one token with the prompt, then fifteen by fives";
  EXPECT_EQ(engine.counts().speculated.drafts, 3);
  EXPECT_EQ(engine.counts().speculated.guessed, 12);
  EXPECT_EQ(engine.counts().speculated.accepted, 12);
  EXPECT_EQ(engine.counts().speculated.accepted_at, (std::vector<int64_t>{3, 3, 3, 3}));
}

TEST(Speculation, guesses_leave_half_of_a_step_to_prompts) {
  Loaded loaded("open/llama");
  InferenceEngine engine(
      loaded.decoder, loaded.context, DType::f32,
      {.capacity = 64, .sequences = 2, .max_batch_tokens = 9, .speculation = {std::make_shared<LookupDrafter>(), 8}});
  const auto talks = std::make_shared<Heard>(1 << 20), joins = std::make_shared<Heard>(1 << 20);
  InferenceRequest request{.prompt = {4, 4, 4, 4}, .max_new_tokens = 50, .sampling = {.temperature = 0}};
  request.sampling.logit_bias = {{4, 1000.0F}};  // it always repeats itself
  engine.submit(request, talks);
  engine.step();
  engine.submit({.prompt = std::vector<int32_t>(8, 9), .max_new_tokens = 2}, joins);
  engine.step();
  EXPECT_EQ(talks->tokens.size(), 1u + 5u);
  engine.step();
  EXPECT_EQ(talks->tokens.size(), 1u + 10u);
  EXPECT_EQ(joins->tokens.size(), 1u);
}

TEST(Speculation, models_whose_caches_take_no_token_back_are_refused) {
  for (const auto& [name, reason] : {std::pair("open/lfm2", "lfm2 model, whose layers keep states: leave"),
                                     std::pair("open/phi3_longrope", "phi3 model, whose rotations change")}) {
    Loaded loaded(name);
    const std::vector<Case> none;
    EXPECT_THAT([&] { run(loaded, none, std::make_shared<LookupDrafter>(), {}); },
                ThrowsMessage<ConfigError>(HasSubstr(reason)));
  }
}

}  // namespace
}  // namespace nought::drafter_test
