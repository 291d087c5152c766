#include "nought/infer/generate.h"

#include <limits>

#include "support/golden.h"
#include "support/size.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/comm/thread.h"
#include "nought/infer/generation_mesh.h"
#include "nought/weights/hf_folder.h"

namespace nought::generate_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

struct Silent final : TokenSink {
  bool on_token(size_t, int32_t) override { return true; }
};

struct Loaded {
  explicit Loaded(const std::string& name)
      : folder(test::golden_folder(name)),
        decoder(ModelConfig::from_folder(folder)),
        self(make_self_communicator()),
        model(context, *self, decoder, {.training = false}) {
    model.load(HfWeights(folder, decoder));
  }
  std::vector<std::vector<int32_t>> run(const std::vector<std::vector<int32_t>>& prompts,
                                        const GenerateOptions& options) {
    Silent silent;
    return generate(decoder, context, DType::f32, prompts, options, silent);
  }
  std::string folder;
  Context context = Context::cpu();
  Decoder decoder;
  std::unique_ptr<Communicator> self;
  ShardedModel model;
};

const std::vector<std::vector<int32_t>> kPrompts{{5, 9, 200}, {17}, {3, 3, 3, 8, 1, 40, 77, 12, 6, 5, 4}, {99, 98}};

class GenerateFamily : public ::testing::TestWithParam<const char*> {};

TEST_P(GenerateFamily, prompts_together_get_what_each_gets_alone) {
  Loaded loaded(GetParam());
  for (const double temperature : {0.0, 0.8}) {
    GenerateOptions options{.max_new_tokens = 12, .sampling = {.temperature = temperature, .seed = 4}};
    const auto together = loaded.run(kPrompts, options);
    for (size_t i = 0; i < kPrompts.size(); ++i) EXPECT_EQ(loaded.run({kPrompts[i]}, options)[0], together[i]) << i;
    options.batch = 2;  // the others wait for room
    EXPECT_EQ(loaded.run(kPrompts, options), together);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, GenerateFamily,
                         ::testing::Values("open/gpt2", "open/llama_gqa", "open/mistral", "open/gemma3_text",
                                           "open/deepseek_v2", "open/phi3_longrope", "open/gpt_oss"),
                         [](const auto& info) { return std::string(info.param).substr(5); });

/// What every rank of a mesh generates, and the bytes of each one's keys and values.
struct Shared {
  std::vector<std::vector<std::vector<int32_t>>> replies;
  std::vector<int64_t> cache_bytes;
};

Shared generate_on(const std::string& name, int ranks, const GenerationSizes& sizes, const GenerateOptions& options) {
  const std::string folder = test::golden_folder(name);
  const ModelConfig config = ModelConfig::from_folder(folder);
  Shared shared{std::vector<std::vector<std::vector<int32_t>>>(static_cast<size_t>(ranks)),
                std::vector<int64_t>(static_cast<size_t>(ranks))};
  run_ranks(ranks, [&](Communicator& world) {
    const Context context = Context::cpu();
    const Mesh mesh(world, generation_mesh(config, ranks, sizes));
    Decoder decoder(config, {}, {}, ModelRanks(mesh));
    ShardedModel model(context, mesh, decoder, {.training = false});
    model.load(HfWeights(folder, decoder));
    Silent silent;
    const auto rank = static_cast<size_t>(world.rank());
    shared.replies[rank] = generate(decoder, context, DType::f32, kPrompts, options, silent);
    shared.cache_bytes[rank] = context.memory->ledger().peak(Category::kv_cache);
  });
  return shared;
}

/// Greedy and sampled, whichever ranks share matrices, layers and experts.
NOUGHT_SIZE(medium);
TEST(Generate, every_product_of_ranks_gets_the_text_of_one) {
  const std::vector<std::pair<int, GenerationSizes>> dense{{2, {.pipeline = 2}},
                                                           {3, {.pipeline = 3}},
                                                           {4, {.pipeline = 4}},
                                                           {4, {.tensor = 2, .pipeline = 2}},
                                                           {8, {.tensor = 2, .pipeline = 4}}};
  const std::vector<std::pair<int, GenerationSizes>> experts{{4, {.pipeline = 2, .experts = 2}},
                                                             {8, {.tensor = 2, .pipeline = 2, .experts = 2}}};
  for (const char* name : {"open/llama_gqa", "open/gemma2", "open/gpt2", "open/mixtral", "open/deepseek_v2"})
    for (const double temperature : {0.0, 0.8}) {
      const GenerateOptions options{
          .max_new_tokens = 12, .batch = 3, .sampling = {.temperature = temperature, .seed = 4}};
      const auto alone = Loaded(name).run(kPrompts, options);
      const bool spreads = ModelConfig::from_folder(test::golden_folder(name)).experts.has_value();
      for (const auto& [ranks, sizes] : spreads ? experts : dense)
        for (const auto& replies : generate_on(name, ranks, sizes, options).replies)
          EXPECT_EQ(replies, alone) << name << " on " << ranks << " ranks at temperature " << temperature;
    }
}

TEST(Generate, keys_and_values_are_kept_where_their_layer_is) {
  const GenerateOptions options{.max_new_tokens = 2};
  const auto bytes = [&](int ranks, const GenerationSizes& sizes) {
    return generate_on("open/llama", ranks, sizes, options).cache_bytes;
  };
  const int64_t whole = bytes(1, {})[0];
  EXPECT_GT(whole, 0);
  EXPECT_THAT(bytes(2, {.pipeline = 2}), ElementsAre(whole / 2, whole / 2));
  EXPECT_THAT(bytes(4, {.pipeline = 4}), ElementsAre(0, whole / 2, whole / 2, 0))
      << "the embedding and the head have none";
  EXPECT_THAT(bytes(4, {.tensor = 2}), ElementsAre(whole / 4, whole / 4, whole / 4, whole / 4));
}

TEST(Generate, each_token_is_drawn_by_its_place_in_the_reply) {
  Loaded loaded("open/llama");
  const SamplingParameters sampling{.temperature = 1.5, .seed = 4};
  std::vector<int32_t> ids = kPrompts[0];
  const auto reply = loaded.run({ids}, {.max_new_tokens = 12, .sampling = sampling})[0];
  ASSERT_EQ(reply.size(), 12u);
  for (size_t i = 0; i < reply.size(); ++i) {
    const auto length = static_cast<int64_t>(ids.size());
    const Tensor all =
        loaded.decoder.logits(loaded.context, {Tensor::of<int32_t>(*loaded.context.memory, {1, length}, ids), {}});
    const std::vector<float> last = all.slice(length - 1, length).to_vector<float>();
    EXPECT_EQ(reply[i], sample_token(last, sampling, i)) << "token " << i;
    ids.push_back(reply[i]);
  }
}

TEST(Generate, a_stop_id_ends_its_own_sequence_and_no_other) {
  Loaded loaded("open/llama");
  GenerateOptions options{.max_new_tokens = 10, .sampling = {.temperature = 0}};
  const auto whole = loaded.run(kPrompts, options);
  options.stop_ids = {whole[0][3]};
  const auto stopped = loaded.run(kPrompts, options);
  for (size_t i = 0; i < kPrompts.size(); ++i) {
    const auto stop = std::find(whole[i].begin(), whole[i].end(), whole[0][3]);
    EXPECT_EQ(stopped[i], std::vector<int32_t>(whole[i].begin(), stop));
  }
}

TEST(Generate, a_sink_ends_a_sequence_with_its_last_token) {
  struct Two final : TokenSink {
    bool on_token(size_t prompt, int32_t) override { return ++counts[prompt] < 2 || prompt != 1; }
    void on_end(size_t prompt) override { ended.push_back(prompt); }
    std::vector<int> counts = std::vector<int>(4);
    std::vector<size_t> ended;
  } sink;
  Loaded loaded("open/llama");
  const auto replies = generate(loaded.decoder, loaded.context, DType::f32, kPrompts,
                                {.max_new_tokens = 5, .sampling = {.temperature = 0}}, sink);
  EXPECT_THAT(sink.counts, ElementsAre(5, 2, 5, 5));
  EXPECT_THAT(sink.ended, ElementsAre(1, 0, 2, 3));
  EXPECT_EQ(replies[1].size(), 2u);
}

/// Also across the length at which longrope rotates all keys otherwise, forwards and back.
TEST(Generate, a_conversation_that_goes_on_gets_what_a_new_one_gets) {
  for (const char* name : {"open/mistral", "open/phi3_longrope"}) {
    Loaded loaded(name);
    const GenerateOptions options{.max_new_tokens = 4, .sampling = {.temperature = 0}};
    Silent silent;
    Generator kept(loaded.decoder, loaded.context, DType::f32, 64, 1);
    std::vector<int32_t> talk{5, 9, 200, 7};
    for (const std::vector<int32_t>& more :
         std::vector<std::vector<int32_t>>{{}, {8, 8, 1, 2, 3, 4, 5, 6, 7, 90, 91, 92}, {17, 4}, {44}}) {
      talk.insert(talk.end(), more.begin(), more.end());
      if (more.size() == 1) talk.erase(talk.begin() + 6, talk.end() - 1);  // what was said is taken back
      const std::vector<int32_t> reply = kept.run(std::span(&talk, 1), options, silent)[0];
      EXPECT_EQ(reply, loaded.run({talk}, options)[0]) << name << " after " << talk.size();
      talk.insert(talk.end(), reply.begin(), reply.end());
    }
  }
}

TEST(Generate, repetition_is_penalised_over_prompt_and_reply) {
  Loaded loaded("open/llama");
  GenerateOptions options{.max_new_tokens = 40, .sampling = {.temperature = 0, .repetition_penalty = 1e6}};
  std::vector<int32_t> all = kPrompts[0];
  const auto replies = loaded.run({kPrompts[0]}, options);
  for (const int32_t token : replies[0]) {
    EXPECT_EQ(std::count(all.begin(), all.end(), token), 0) << token;
    all.push_back(token);
  }
}

TEST(Generate, prompts_that_do_not_fit_are_errors) {
  Loaded loaded("open/gpt2");
  EXPECT_THAT([&] { loaded.run(std::vector<std::vector<int32_t>>(1), {.max_new_tokens = 4}); },
              ThrowsMessage<ConfigError>(HasSubstr("empty")));
  EXPECT_THAT([&] { loaded.run({{1}}, {.max_new_tokens = 100000}); },
              ThrowsMessage<ConfigError>(HasSubstr("positions that the model has learned")));
  EXPECT_THAT([&] { loaded.run({{1}}, {.max_new_tokens = std::numeric_limits<int64_t>::max()}); },
              ThrowsMessage<ConfigError>(HasSubstr("--max-new-tokens must be 1 to 16777216, got 9223372036854775807")));
  EXPECT_THAT([&] { loaded.run({{1}}, {.max_new_tokens = 1, .batch = std::numeric_limits<int64_t>::max()}); },
              ThrowsMessage<ConfigError>(HasSubstr("--batch-size must be 1 to 65536")));
  Silent silent;
  Generator small(loaded.decoder, loaded.context, DType::f32, 2, 1);
  EXPECT_THAT([&] { small.run(std::span(&kPrompts[0], 1), {}, silent); },
              ThrowsMessage<ConfigError>(HasSubstr("room for")));
  const std::vector<int32_t> one{1};
  EXPECT_EQ(small.run(std::span(&one, 1), {.sampling = {.temperature = 0}}, silent)[0].size(), 2u)
      << "a sequence ends when its part of the cache is full";
}

}  // namespace
}  // namespace nought::generate_test
