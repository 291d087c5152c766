// Requests that choose one of several adapters, beside each other, against each of them alone.
#include "nought/weights/adapter_choices.h"

#include <random>
#include <set>

#include "support/golden.h"
#include "support/message_of.h"
#include "support/size.h"
#include "support/temp_folder.h"
#include "support/written_adapter.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/comm/communicator.h"
#include "nought/comm/mesh.h"
#include "nought/comm/thread.h"
#include "nought/infer/generate.h"
#include "nought/infer/generation_mesh.h"
#include "nought/infer/inference_engine.h"
#include "nought/zero/sharded_model.h"

namespace nought::adapter_choices_test {
namespace {

using test::golden_folder;
using test::message_of;
using test::TempFolder;
using test::write_adapter;
namespace fs = std::filesystem;
using testing::HasSubstr;

struct Case {
  const char* model;
  Json first, second;  // adapters
};

/// A model, three adapters of it, and the requests that choose among them.
struct Choices {
  explicit Choices(const Case& of) : base(golden_folder(of.model)) {
    const AdapterUse first{write_adapter(folder / "first", base, of.first, 1)};
    adapters = {{"first", first},
                {"second", {write_adapter(folder / "second", base, of.second, 2), 0.5}},
                {"first.scaled", {first.folder, -1.5}}};
    std::mt19937 random(5);
    const auto upto = [&](int64_t most) { return static_cast<int64_t>(random() % static_cast<unsigned>(most)); };
    const int64_t vocab_size = ModelConfig::from_folder(base).vocab_size;
    for (size_t i = 0; i < 12; ++i) {
      InferenceRequest each{.max_new_tokens = 2 + upto(6)};
      if (i % 3 > 0) each.prompt = {5, 9, 17, 3, 8, 2, 1, 4, 6, 7, 5, 9, 17, 3, 8, 2, 1, 4, 6, 7};  // as others begin
      for (int64_t left = 1 + upto(9); left > 0; --left) each.prompt.push_back(static_cast<int32_t>(upto(vocab_size)));
      each.sampling = {.temperature = i % 2 == 0 ? 0.0 : 0.9, .seed = static_cast<uint64_t>(upto(1000))};
      each.adapter = static_cast<int32_t>(i < 4 ? i : static_cast<size_t>(upto(4))) - 1;
      if (i < 4) each.prompt = {5, 9, 17}, each.max_new_tokens = 8, each.sampling = {.temperature = 0};
      requests.push_back(each);
    }
  }

  TempFolder folder;
  std::string base;
  std::vector<NamedAdapter> adapters;
  std::vector<InferenceRequest> requests;
};

/// A model over ranks.
struct Loaded {
  Loaded(const ModelConfig& config, const StateSource& weights, Communicator& world, const Context& context,
         const GenerationSizes& sizes)
      : mesh(world, generation_mesh(config, world.size(), sizes)),
        decoder(config, {}, {}, ModelRanks(mesh)),
        model(context, mesh, decoder, {.dtype = DType::bf16, .training = false}) {
    model.load(weights);
  }
  Mesh mesh;
  Decoder decoder;
  ShardedModel model;
};

struct Heard final : RequestListener {
  void on_start(int64_t reused) override { cached = reused; }
  bool on_token(const ScoredToken& token) override { return tokens.push_back(token.id), true; }
  void on_end(FinishReason, std::exception_ptr cause) override { error = std::move(cause); }
  int64_t cached = 0;
  std::vector<int32_t> tokens;
  std::exception_ptr error;
};

/// What the requests get from models that have their adapter alone.
std::vector<std::vector<int32_t>> alone(const Choices& choices, Communicator& world, const Context& context,
                                        const GenerationSizes& sizes) {
  struct Silent final : TokenSink {
    bool on_token(size_t, int32_t) override { return true; }
  } silent;
  std::vector<std::vector<int32_t>> tokens(choices.requests.size());
  for (int32_t adapter = kNoAdapter; adapter < std::ssize(choices.adapters); ++adapter) {
    FoundModel found{choices.base};
    if (adapter != kNoAdapter) found.adapters = {choices.adapters[static_cast<size_t>(adapter)].use};
    const ModelSource source(found);
    Loaded one(source.config(), source.weights(), world, context, sizes);
    for (size_t i = 0; i < tokens.size(); ++i) {
      const InferenceRequest& each = choices.requests[i];
      if (each.adapter == adapter)
        tokens[i] = generate(one.decoder, context, DType::bf16, std::span(&each.prompt, 1),
                             {.max_new_tokens = each.max_new_tokens, .sampling = each.sampling}, silent)[0];
    }
  }
  return tokens;
}

void expect_what_each_gets_alone(const Choices& choices, int ranks, const GenerationSizes& sizes) {
  run_ranks(ranks, [&](Communicator& world, const Context& context) {
    const std::vector<std::vector<int32_t>> expected = alone(choices, world, context, sizes);
    const ModelSource source(FoundModel{choices.base});
    const AdapterChoices beside(source, choices.adapters);
    Loaded together(beside.config(), beside, world, context, sizes);
    const InferenceEngine::Options options{.capacity = 64, .sequences = 4, .max_batch_tokens = 24};
    if (world.rank() != 0)
      return CachedDecoder(together.decoder, context, DType::bf16, options.cache(), &world).follow();
    InferenceEngine engine(together.decoder, context, DType::bf16, options, &world);
    std::vector<std::shared_ptr<Heard>> heard;
    for (const InferenceRequest& each : choices.requests) {
      heard.push_back(std::make_shared<Heard>());
      engine.submit(each, heard.back());
      if (heard.size() % 3 == 0) engine.step();
    }
    while (engine.step()) continue;
    for (size_t i = 0; i < expected.size(); ++i)
      EXPECT_EQ(heard[i]->tokens, expected[i]) << "request " << i << " with adapter " << choices.requests[i].adapter;
    EXPECT_EQ(std::set<std::vector<int32_t>>(expected.begin(), expected.begin() + 4).size(), 4U) << "adapters matter";
    EXPECT_GT(engine.counts().reused_tokens, 0) << "those of one adapter share beginnings";
    engine.dismiss();
  });
}

const Json kVocabularyToo = {{"r", 4}, {"target_modules", {"q_proj", "down_proj", "embed_tokens", "lm_head"}}};
const Json kAllLinear = {{"r", 2}, {"use_rslora", true}, {"target_modules", "all-linear"}};

NOUGHT_SIZE(medium);
TEST(AdapterChoices, a_request_gets_what_its_adapter_gives_alone) {
  const Case llama{"open/llama_gqa", kVocabularyToo, kAllLinear},
      gpt2{"open/gpt2",
           {{"r", 3}, {"target_modules", {"c_attn", "c_proj"}}, {"lora_bias", true}},
           {{"r", 5}, {"target_modules", {"c_fc", "wte"}}}},
      mixtral{"open/mixtral",
              {{"r", 3}, {"lora_alpha", 64}, {"target_modules", {"q_proj", "gate"}}},
              {{"r", 2}, {"lora_alpha", 64}, {"target_modules", {"gate"}}}};
  for (const Case& of : {llama, gpt2, mixtral}) {
    SCOPED_TRACE(of.model);
    expect_what_each_gets_alone(Choices(of), 1, {});
  }
  expect_what_each_gets_alone(Choices(llama), 2, {});
  expect_what_each_gets_alone(Choices(llama), 2, {.pipeline = 2});
}

TEST(AdapterChoices, an_adapter_takes_the_bytes_of_its_factors) {
  const Choices choices({"open/llama", kVocabularyToo, kAllLinear});
  const ModelSource source(FoundModel{choices.base});
  const auto bytes_of = [&](size_t count) {
    const AdapterChoices beside(source,
                                {choices.adapters.begin(), choices.adapters.begin() + static_cast<int64_t>(count)});
    const Context context = Context::cpu();
    const auto self = make_self_communicator();
    const Loaded loaded(beside.config(), beside, *self, context, {});
    return context.memory->ledger().current(Category::parameters);
  };
  const ModelConfig& config = source.config();
  const int64_t hidden = config.hidden_size, inner = config.intermediate_size, vocab = config.vocab_size;
  const int64_t q = config.num_heads * config.head_dim;
  const int64_t elements = 4 * (config.num_layers * (hidden + q + inner + hidden) + 2 * (vocab + hidden));
  EXPECT_EQ(bytes_of(1) - bytes_of(0), 2 * elements);
}

/// What is wrong with an adapter of the golden llama that this config describes.
std::string refused(const Json& config) {
  const TempFolder folder;
  const std::string base = golden_folder("open/llama");
  const fs::path adapter = write_adapter(folder / "adapter", base, config, 3);
  const ModelSource source(FoundModel{base});
  return message_of<ConfigError>([&] { AdapterChoices(source, {{"mine", {adapter}}}); });
}

TEST(AdapterChoices, what_rows_cannot_choose_is_refused) {
  EXPECT_EQ(refused({{"target_modules", {"q_proj"}}}), "");
  EXPECT_THAT(
      refused({{"target_modules", {"q_proj"}}, {"modules_to_save", {"lm_head"}}}),
      HasSubstr("it changes weights of the model itself (modules_to_save, bias), which requests cannot choose"));
  EXPECT_THAT(refused({{"target_modules", {"q_proj"}}, {"use_dora", true}}), HasSubstr("(use_dora)"));
  EXPECT_THAT(refused({{"target_modules", {"q_proj"}}, {"init_lora_weights", "olora"}}),
              HasSubstr("(init_lora_weights)"));
}

TEST(AdapterChoices, names_and_folders_are_told_apart) {
  const Choices choices({"open/llama", kAllLinear, kAllLinear});
  const std::string folder = choices.adapters[0].use.folder.string();
  const NamedAdapter named = parse_named_adapter("a=" + folder + "=0.5");
  EXPECT_EQ(named.name, "a");
  EXPECT_EQ(named.use.folder, folder);
  EXPECT_EQ(named.use.scale, 0.5);
  for (const std::string& text : {folder, folder + "=0.5", "=" + folder, std::string("a=")})
    EXPECT_THAT(message_of<ConfigError>([&] { parse_named_adapter(text); }), HasSubstr("expected NAME=FOLDER")) << text;
  EXPECT_THAT(message_of<IoError>([] { parse_named_adapter("a=/nowhere"); }), HasSubstr("in /nowhere"));
  const ModelSource source(FoundModel{choices.base});
  EXPECT_THAT(message_of<ConfigError>([&] {
                AdapterChoices(source, {choices.adapters[0], choices.adapters[0]});
              }),
              HasSubstr("another adapter has this name"));
  const ModelSource adapted(FoundModel{choices.base, {}, {choices.adapters[0].use}});
  EXPECT_THAT(message_of<ConfigError>([&] { AdapterChoices(adapted, {choices.adapters[1]}); }),
              HasSubstr("--adapter second: the model is an adapter itself: serve its model"));
}

}  // namespace
}  // namespace nought::adapter_choices_test
