// Ranks that compute what rank 0 schedules: plans as numbers, and requests that get what they would get alone.
#include "nought/infer/cached_decoder.h"

#include <atomic>
#include <random>

#include "support/golden.h"
#include "support/size.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/comm/mesh.h"
#include "nought/comm/thread.h"
#include "nought/infer/generate.h"
#include "nought/infer/generation_mesh.h"
#include "nought/weights/hf_folder.h"
#include "nought/zero/sharded_model.h"

namespace nought::cached_decoder_test {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

void expect_same(const StepPlan& got, const StepPlan& sent) {
  EXPECT_EQ(got.work, sent.work);
  EXPECT_EQ(got.changes, sent.changes);
  ASSERT_EQ(got.next.size(), sent.next.size());
  for (size_t i = 0; i < sent.next.size(); ++i) {
    EXPECT_EQ(got.next[i].sequence, sent.next[i].sequence);
    EXPECT_EQ(got.next[i].wants_every, sent.next[i].wants_every);
    EXPECT_EQ(got.next[i].adapter, sent.next[i].adapter);
    EXPECT_TRUE(std::ranges::equal(got.next[i].ids, sent.next[i].ids));
  }
}

TEST(StepPlan, the_other_ranks_get_what_the_first_one_sends) {
  const std::vector<int32_t> one{7};
  for (const int64_t tokens : {int64_t{1}, StepPlans::kWordsAtOnce - 15, StepPlans::kWordsAtOnce - 14,
                               StepPlans::kWordsAtOnce - 13, int64_t{5000}}) {  // one broadcast, or two
    std::vector<int32_t> prompt(static_cast<size_t>(tokens));
    for (size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<int32_t>(i * 7919 % 50257);
    const std::vector<StepPlan> plans{
        {.work = StepPlan::Work::logits,
         .changes = {{.sequence = 2, .count = 9}},
         .next = {{3, one}, {0, prompt, true, 2}}},
        {},
        {.work = StepPlan::Work::hidden, .changes = {{.sequence = 1, .from = 4, .count = 5}}, .next = {{1, prompt}}},
        {.work = StepPlan::Work::end}};
    run_ranks(3, [&](Communicator& ranks, const Context& context) {
      StepPlans channel(ranks, context);
      for (const StepPlan& each : plans) ranks.rank() == 0 ? channel.send(each) : expect_same(channel.receive(), each);
    });
  }
}

TEST(StepPlan, numbers_that_are_no_plan_are_refused) {
  const std::vector<int32_t> ids{5, 9};
  const std::vector<int32_t> words = StepPlan{.work = StepPlan::Work::logits, .next = {{0, ids}}}.words();
  for (size_t cut = 0; cut < words.size(); ++cut)
    EXPECT_THROW(StepPlan::read(std::span(words).first(cut)), Error) << cut;
  std::vector<int32_t> other = words;
  other[0] = 99;
  EXPECT_THAT([&] { StepPlan::read(other); }, ThrowsMessage<Error>(HasSubstr("names the work 99")));
}

/// Keeps the tokens of a request, and the embedding that it may ask for.
struct Heard final : RequestListener {
  bool on_token(const ScoredToken& token) override { return tokens.push_back(token.id), true; }
  void on_embedding(const std::vector<float>& given) override { values = given; }
  void on_end(FinishReason, std::exception_ptr cause) override { error = std::move(cause); }
  std::vector<int32_t> tokens;
  std::vector<float> values;
  std::exception_ptr error;
};

/// A golden model over ranks.
struct Shared {
  Shared(const char* name, Communicator& world, const Context& context, const GenerationSizes& sizes)
      : folder(test::golden_folder(name)),
        config(ModelConfig::from_folder(folder)),
        mesh(world, generation_mesh(config, world.size(), sizes)),
        decoder(config, {}, {}, ModelRanks(mesh)),
        model(context, mesh, decoder, {.training = false}) {
    model.load(HfWeights(folder, decoder));
  }
  std::string folder;
  ModelConfig config;
  Mesh mesh;
  Decoder decoder;
  ShardedModel model;
};

struct Layout {
  const char* name;
  int ranks;
  GenerationSizes sizes;
  bool guesses = false;
};

std::vector<InferenceRequest> random_requests(size_t count, int64_t vocab_size, unsigned seed) {
  std::mt19937 random(seed);
  const auto upto = [&](int64_t most) { return static_cast<int64_t>(random() % static_cast<unsigned>(most)); };
  std::vector<InferenceRequest> requests(count);
  for (InferenceRequest& each : requests) {
    each.max_new_tokens = 1 + upto(6);
    if (upto(2) == 0) each.prompt.assign(20, 5);
    for (int64_t i = 1 + upto(12); i > 0; --i) each.prompt.push_back(static_cast<int32_t>(upto(vocab_size)));
    each.sampling = {.temperature = upto(2) == 0 ? 0.0 : 0.9, .seed = static_cast<uint64_t>(upto(1000))};
  }
  requests.front().prompt.assign(20, 5);  // one that repeats itself, which guesses get right
  requests.front().max_new_tokens = 9;
  requests.front().sampling.logit_bias = {{5, 1000.0F}};
  return requests;
}

NOUGHT_SIZE(medium);
TEST(CachedDecoder, ranks_that_follow_give_requests_what_generate_gives_alone) {
  for (const Layout& layout : {Layout{"open/llama", 2, {}}, Layout{"open/llama", 2, {}, true},
                               Layout{"open/llama", 2, {.pipeline = 2}}, Layout{"open/mixtral", 2, {.experts = 2}}})
    run_ranks(layout.ranks, [&](Communicator& world, const Context& context) {
      Shared shared(layout.name, world, context, layout.sizes);
      const auto requests = random_requests(5, shared.config.vocab_size, 3);
      struct Silent final : TokenSink {
        bool on_token(size_t, int32_t) override { return true; }
      } silent;
      std::vector<std::vector<int32_t>> alone;
      for (const InferenceRequest& each : requests)
        alone.push_back(generate(shared.decoder, context, DType::f32, std::span(&each.prompt, 1),
                                 {.max_new_tokens = each.max_new_tokens, .sampling = each.sampling}, silent)[0]);
      InferenceEngine::Options options{.capacity = 64, .sequences = 3, .max_batch_tokens = 16};
      if (layout.guesses) options.speculation.drafter = std::make_shared<LookupDrafter>();
      if (world.rank() != 0)
        return CachedDecoder(shared.decoder, context, DType::f32, options.cache(), &world).follow();
      InferenceEngine engine(shared.decoder, context, DType::f32, options, &world);
      std::vector<std::shared_ptr<Heard>> heard;
      for (const InferenceRequest& each : requests) {
        heard.push_back(std::make_shared<Heard>());
        engine.submit(each, heard.back());
        engine.step();
      }
      const auto embedded = std::make_shared<Heard>();
      engine.submit({.prompt = requests[0].prompt, .pooling = PoolingMode::mean}, embedded);
      while (engine.step()) engine.keep_alive();
      for (size_t i = 0; i < requests.size(); ++i) EXPECT_EQ(heard[i]->tokens, alone[i]) << layout.name << " " << i;
      EXPECT_EQ(std::ssize(embedded->values), shared.config.hidden_size);
      EXPECT_EQ(engine.counts().speculated.accepted > 0, layout.guesses);
      EXPECT_GT(engine.counts().reused_tokens, 0) << "a beginning was copied on all ranks";
      engine.dismiss();
    });
}

NOUGHT_SIZE(medium);
TEST(CachedDecoder, a_rank_that_fails_ends_the_requests_of_the_first_one) {
  std::shared_ptr<Heard> heard;
  EXPECT_THROW(run_ranks(2,
                         [&](Communicator& world, const Context& context) {
                           Shared shared("open/llama", world, context, {});
                           const InferenceEngine::Options options{.capacity = 64, .sequences = 2};
                           if (world.rank() != 0) fail<IoError>("this rank is gone");
                           InferenceEngine engine(shared.decoder, context, DType::f32, options, &world);
                           heard = std::make_shared<Heard>();
                           engine.submit({.prompt = {5, 9}}, heard);
                           while (engine.step()) continue;
                         }),
               IoError);
  ASSERT_TRUE(heard);
  ASSERT_TRUE(heard->error);
  EXPECT_THROW(std::rethrow_exception(heard->error), PeerError);
}

}  // namespace
}  // namespace nought::cached_decoder_test
