#include "nought/infer/inference_engine.h"

#include <random>

#include "support/golden.h"
#include "support/size.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/comm/communicator.h"
#include "nought/infer/generate.h"
#include "nought/weights/hf_folder.h"
#include "nought/zero/sharded_model.h"

namespace nought::inference_engine_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

struct Loaded {
  explicit Loaded(const std::string& name)
      : folder(test::golden_folder(name)),
        decoder(ModelConfig::from_folder(folder)),
        self(make_self_communicator()),
        model(context, *self, decoder, {.training = false}) {
    model.load(HfWeights(folder, decoder));
  }
  InferenceEngine engine(const InferenceEngine::Options& options) { return {decoder, context, DType::f32, options}; }
  std::string folder;
  Context context = Context::cpu();
  Decoder decoder;
  std::unique_ptr<Communicator> self;
  ShardedModel model;
};

/// Keeps all that it hears.
struct Heard final : RequestListener {
  void on_start(int64_t reused) override { cached = reused; }
  void on_prompt_token(const ScoredToken& token) override { prompt.push_back(token); }
  bool on_token(const ScoredToken& token) override {
    scores.push_back(token);
    tokens.push_back(token.id);
    return std::ssize(tokens) < most;
  }
  void on_end(FinishReason why, std::exception_ptr cause) override {
    EXPECT_FALSE(reason.has_value()) << "it ended twice";
    reason = why;
    error = std::move(cause);
  }
  int64_t cached = -1, most = 1 << 20;
  std::vector<ScoredToken> prompt, scores;
  std::vector<int32_t> tokens;
  std::optional<FinishReason> reason;
  std::exception_ptr error;
};

std::vector<int32_t> alone(Loaded& loaded, const InferenceRequest& request) {
  struct Silent final : TokenSink {
    bool on_token(size_t, int32_t) override { return true; }
  } silent;
  return generate(loaded.decoder, loaded.context, DType::f32, std::span(&request.prompt, 1),
                  {.max_new_tokens = request.max_new_tokens, .sampling = request.sampling}, silent)[0];
}

class EngineFamily : public ::testing::TestWithParam<const char*> {};

NOUGHT_SIZE(medium);
/// Requests of random lengths arrive between random steps, and chunks are of every length; beginnings are common.
TEST_P(EngineFamily, a_request_gets_what_generate_gives_alone) {
  Loaded loaded(GetParam());
  const auto vocab = static_cast<int>(loaded.decoder.config().vocab_size);
  std::mt19937 random(7);
  const auto upto = [&](int most) { return static_cast<int64_t>(random() % static_cast<unsigned>(most)); };
  for (const int64_t budget : {1, 7, 64}) {
    InferenceEngine engine = loaded.engine({.capacity = 64, .sequences = 3, .max_batch_tokens = budget});
    std::vector<InferenceRequest> requests;
    std::vector<std::shared_ptr<Heard>> heard;
    while (requests.size() < 6 || engine.counts().running + engine.counts().waiting > 0) {
      if (requests.size() < 6 && upto(3) == 0) {
        InferenceRequest request{.max_new_tokens = 1 + upto(9)};
        if (upto(2) == 0) request.prompt = {5, 9, 17, 3};
        for (int64_t i = 1 + upto(20); i > 0; --i) request.prompt.push_back(static_cast<int32_t>(upto(vocab)));
        request.sampling = {.temperature = upto(2) == 0 ? 0.0 : 0.9,
                            .top_p = 0.95,
                            .repetition_penalty = 1.1,
                            .seed = static_cast<uint64_t>(upto(1000))};
        requests.push_back(request);
        heard.push_back(std::make_shared<Heard>());
        engine.submit(request, heard.back());
      }
      engine.step();
    }
    for (size_t i = 0; i < requests.size(); ++i) {
      EXPECT_EQ(heard[i]->tokens, alone(loaded, requests[i])) << "request " << i << " in steps of " << budget;
      EXPECT_EQ(heard[i]->reason, FinishReason::length);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, EngineFamily,
                         ::testing::Values("open/gpt2", "open/llama_gqa", "open/mistral", "open/deepseek_v2",
                                           "open/phi3_longrope", "open/gpt_oss", "open/lfm2", "open/qwen3_next"),
                         [](const auto& info) { return std::string(info.param).substr(5); });

InferenceRequest greedy(std::vector<int32_t> prompt, int64_t max_new_tokens) {
  return {.prompt = std::move(prompt), .max_new_tokens = max_new_tokens, .sampling = {.temperature = 0}};
}

TEST(InferenceEngine, a_cancelled_request_leaves_its_place_to_the_next) {
  Loaded loaded("open/llama");
  InferenceEngine engine = loaded.engine({.capacity = 32, .sequences = 1});
  const auto first = std::make_shared<Heard>(), second = std::make_shared<Heard>(), third = std::make_shared<Heard>();
  const uint64_t number = engine.submit(greedy({5, 9}, 20), first);
  const uint64_t never = engine.submit(greedy({7}, 20), second);
  engine.submit(greedy({8}, 2), third);
  engine.step();
  EXPECT_EQ(engine.counts().running, 1);
  EXPECT_EQ(engine.counts().waiting, 2);
  engine.cancel(number);
  engine.cancel(never);
  engine.cancel(never);
  EXPECT_EQ(first->reason, FinishReason::cancelled);
  EXPECT_EQ(second->reason, FinishReason::cancelled);
  EXPECT_EQ(first->tokens.size(), 1u);
  engine.step();
  EXPECT_EQ(third->tokens.size(), 1u);
  EXPECT_TRUE(engine.step());
  EXPECT_FALSE(engine.step());
  EXPECT_EQ(third->tokens, alone(loaded, greedy({8}, 2)));
}

TEST(InferenceEngine, a_prompt_that_joins_does_not_hold_up_those_that_generate) {
  Loaded loaded("open/llama");
  InferenceEngine engine = loaded.engine({.capacity = 64, .sequences = 2, .max_batch_tokens = 8});
  const auto talks = std::make_shared<Heard>(), joins = std::make_shared<Heard>();
  engine.submit(greedy({5, 9}, 40), talks);
  engine.step();
  engine.submit(greedy(std::vector<int32_t>(29, 4), 3), joins);  // in chunks of 7, 7, 7, 7 and 1
  for (size_t step = 1; step <= 5; ++step) {
    EXPECT_EQ(joins->tokens.size(), 0u);
    engine.step();
    EXPECT_EQ(talks->tokens.size(), 1 + step);
  }
  EXPECT_EQ(joins->tokens.size(), 1u);
}

TEST(InferenceEngine, a_common_beginning_is_not_computed_again) {
  Loaded loaded("open/llama");
  InferenceEngine engine = loaded.engine({.capacity = 64, .sequences = 2});
  const auto run = [&](std::vector<int32_t> prompt) {
    const auto heard = std::make_shared<Heard>();
    engine.submit(greedy(prompt, 4), heard);
    while (engine.step()) continue;
    EXPECT_EQ(heard->tokens, alone(loaded, greedy(prompt, 4)));
    return heard->cached;
  };
  EXPECT_EQ(run({5, 9, 200, 17, 3}), 0);
  EXPECT_EQ(run({40, 41}), 0) << "the other part of the cache";
  EXPECT_EQ(run({5, 9, 200, 17, 4, 4}), 4);
  EXPECT_EQ(run({5, 9, 200, 17, 4, 4}), 5) << "its last token is asked for its logits";
  EXPECT_EQ(engine.counts().reused_tokens, 9);
  EXPECT_EQ(engine.counts().prompt_tokens, 19);
}

TEST(InferenceEngine, scores_are_those_of_the_models_logits) {
  Loaded loaded("open/llama");
  const std::vector<int32_t> prompt{5, 9, 200, 17, 3};
  const Tensor all = loaded.decoder.logits(
      loaded.context, {Tensor::of<int32_t>(*loaded.context.memory, {1, std::ssize(prompt)}, prompt), {}});
  for (const int64_t budget : {2, 64}) {
    InferenceEngine engine = loaded.engine({.capacity = 64, .sequences = 2, .max_batch_tokens = budget});
    const auto heard = std::make_shared<Heard>();
    InferenceRequest request = greedy(prompt, 0);
    request.likeliest = 2;
    request.scores_prompt = true;
    engine.submit(request, heard);
    request.max_new_tokens = 1;
    request.sampling.logit_bias = {{33, 100.0F}};
    const auto biased = std::make_shared<Heard>();
    engine.submit(request, biased);
    while (engine.step()) continue;
    ASSERT_EQ(heard->prompt.size(), prompt.size() - 1);
    EXPECT_TRUE(heard->tokens.empty());
    EXPECT_EQ(heard->reason, FinishReason::length);
    for (size_t i = 1; i < prompt.size(); ++i) {
      const auto row = static_cast<int64_t>(i);
      const std::vector<float> logits = all.slice(row - 1, row).to_vector<float>();
      EXPECT_EQ(heard->prompt[i - 1].log_probability, log_probability(logits, prompt[i]));
      ASSERT_EQ(heard->prompt[i - 1].likeliest.size(), 2u);
      EXPECT_EQ(heard->prompt[i - 1].likeliest[0].id, greedy_token(logits));
    }
    EXPECT_THAT(biased->tokens, ElementsAre(33));
    const std::vector<float> last = all.slice(4, 5).to_vector<float>();
    EXPECT_EQ(biased->scores[0].log_probability, log_probability(last, 33)) << "before the bias";
  }
}

TEST(InferenceEngine, stop_ids_wait_for_the_least_number_of_tokens) {
  Loaded loaded("open/llama");
  InferenceEngine engine = loaded.engine({.capacity = 64, .sequences = 2});
  InferenceRequest request = greedy({5, 9, 200}, 6);
  const std::vector<int32_t> free = alone(loaded, request);
  request.stop_ids = {free[0]};
  const auto at_once = std::make_shared<Heard>(), later = std::make_shared<Heard>();
  engine.submit(request, at_once);
  request.min_new_tokens = 3;
  engine.submit(request, later);
  while (engine.step()) continue;
  EXPECT_TRUE(at_once->tokens.empty());
  EXPECT_EQ(at_once->reason, FinishReason::stop);
  ASSERT_GE(later->tokens.size(), 3u);
  EXPECT_EQ(std::count(later->tokens.begin(), later->tokens.end(), free[0]), 0);
}

TEST(InferenceEngine, an_embedding_is_of_the_hidden_states_that_logits_are_made_of) {
  struct Embedded final : RequestListener {
    bool on_token(const ScoredToken&) override { return false; }
    void on_embedding(const std::vector<float>& given) override { values = given; }
    void on_end(FinishReason why, std::exception_ptr) override { reason = why; }
    std::vector<float> values;
    FinishReason reason = FinishReason::failed;
  };
  Loaded loaded("open/llama");
  const std::vector<int32_t> prompt{5, 9, 200, 7};
  InferenceEngine engine = loaded.engine({.capacity = 64, .sequences = 2, .max_batch_tokens = 3});
  const auto beside = std::make_shared<Heard>();
  engine.submit(greedy({5, 9}, 5), beside);
  engine.step();
  std::map<PoolingMode, std::vector<float>> found;
  for (const PoolingMode pooling : {PoolingMode::mean, PoolingMode::lasttoken, PoolingMode::cls}) {
    const auto heard = std::make_shared<Embedded>();
    engine.submit({.prompt = prompt, .pooling = pooling}, heard);
    while (engine.step()) continue;
    EXPECT_EQ(heard->reason, FinishReason::stop);
    found[pooling] = heard->values;
  }
  EXPECT_EQ(beside->tokens, alone(loaded, greedy({5, 9}, 5)));

  DecoderCache cache = loaded.decoder.make_cache(loaded.context, 16, DType::f32);
  const NextTokens next{0, prompt, true};
  const auto rows =
      loaded.context.to_host<float>(loaded.decoder.next_hidden(loaded.context, std::span(&next, 1), cache));
  const size_t hidden = rows.size() / prompt.size();
  EXPECT_EQ(found[PoolingMode::cls],
            std::vector<float>(rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(hidden)));
  EXPECT_EQ(found[PoolingMode::lasttoken],
            std::vector<float>(rows.end() - static_cast<std::ptrdiff_t>(hidden), rows.end()));
  for (size_t i = 0; i < hidden; ++i) {
    double sum = 0;
    for (size_t row = 0; row < prompt.size(); ++row) sum += rows[row * hidden + i];
    EXPECT_FLOAT_EQ(found[PoolingMode::mean][i], static_cast<float>(sum / 4));
  }
}

TEST(InferenceEngine, a_request_that_fails_leaves_the_others_alone) {
  Loaded loaded("open/llama");
  InferenceEngine engine = loaded.engine({.capacity = 64, .sequences = 2});
  const auto fails = std::make_shared<Heard>(), goes_on = std::make_shared<Heard>();
  InferenceRequest request = greedy({5, 9}, 3);
  request.sampling.logit_bias = {{100000, 1.0F}};  // no such token
  engine.submit(request, fails);
  engine.submit(greedy({5, 9}, 3), goes_on);
  while (engine.step()) continue;
  EXPECT_EQ(fails->reason, FinishReason::failed);
  EXPECT_THROW(std::rethrow_exception(fails->error), ShapeError);
  EXPECT_EQ(goes_on->tokens, alone(loaded, greedy({5, 9}, 3)));
  EXPECT_THAT([&] { engine.submit(greedy({}, 3), goes_on); }, ThrowsMessage<ConfigError>(HasSubstr("is empty")));
  EXPECT_THAT([&] { engine.submit(greedy({-1}, 3), goes_on); },
              ThrowsMessage<ConfigError>(HasSubstr("is not a token")));
  EXPECT_EQ(engine.counts().running + engine.counts().waiting, 0);
}

}  // namespace
}  // namespace nought::inference_engine_test
