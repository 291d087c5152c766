// A model that is written as a GGUF file and read again is the same: its config, its tensors, its logits.
#include <functional>

#include "support/golden_case.h"
#include "support/saved_model.h"
#include "support/size.h"
#include "support/temp_folder.h"
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "nought/models/gguf_places.h"
#include "nought/weights/convert.h"

namespace nought::gguf_round_trip_test {
namespace {

using nlohmann::json;
using test::golden_folder;
using test::TempFolder;
using test::TrainingRank;

std::filesystem::path written(const std::filesystem::path& folder, const TempFolder& target) {
  const auto memory = Memory::create();
  convert_to_gguf(ModelSource(folder), target / "m.gguf", gguf_mixture(GgufType::f32), *memory);
  return target / "m.gguf";
}

/// What a GGUF file has no key for: who made the config, how weights begin, and losses of training alone.
ModelConfig comparable(ModelConfig config) {
  config.notes.clear();
  config.bos_token_id.reset(), config.eos_token_ids.clear();
  config.initializer_range = 0;
  config.derived_width.reset();
  if (config.experts) config.experts->auxiliary_coefficient = 0;
  return config;
}

std::vector<float> values_of(const ModelSource& source, const Parameter& parameter, Interval elements) {
  const auto memory = Memory::create();
  const Tensor values = Tensor::empty(*memory, {elements.size()}, DType::f32, Category::workspace);
  source.weights().fill(StateKind::master, parameter, elements, values);
  return values.to_vector<float>();
}

void expect_same(const std::filesystem::path& folder, const std::filesystem::path& file) {
  const ModelSource source(folder), read(file);
  EXPECT_EQ(comparable(read.config()), comparable(source.config()));
  EXPECT_EQ(read.config().to_hf_json(DType::f32)["model_type"], source.config().family);
  EXPECT_TRUE(read.unused().empty()) << read.unused().front();
  const GgufPlaces places(source.config());
  for (const auto& unit : source.model().units())
    for (const Parameter& parameter : unit->parameters()) {
      SCOPED_TRACE(parameter.name);
      const GgufPlace place = places.of(parameter);
      const Interval whole{0, parameter.placement.global.numel()}, part{whole.end / 3, whole.end - whole.end / 5};
      const std::vector<float> want = values_of(source, parameter, whole), have = values_of(read, parameter, whole);
      if (place.offset == 0 && place.factor == 1 && !place.negative_exp) {
        EXPECT_EQ(have, want);
      } else {
        for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(have[i], want[i], 2e-7);
      }
      const std::vector<float> some(have.begin() + part.begin, have.begin() + part.end);
      EXPECT_EQ(values_of(read, parameter, part), some) << "what a rank asks for";
    }
}

class GgufRoundTrip : public ::testing::TestWithParam<const char*> {};

NOUGHT_SIZE(medium);
TEST_P(GgufRoundTrip, has_the_same_config_and_tensors_and_the_golden_logits_and_gradients) {
  const TempFolder target;
  const std::string folder = golden_folder(std::string("open/") + GetParam());
  const std::filesystem::path file = written(folder, target);
  expect_same(folder, file);
  test::TrainingCase on{.model = ModelConfig::from_folder(file), .settings = {}};
  on.load = [&](ShardedModel& model, Decoder&) { model.load(ModelSource(file).weights()); };
  on.on_ranks([&](TrainingRank& rank) {
    const std::string golden = folder + "/golden.safetensors";
    const ProbeInput input = read_probe_input(rank.context, golden, rank.decoder.config().vocab_size);
    test::expect_all_golden(probe(rank.model, rank.decoder, input, true), golden);
  });
}

INSTANTIATE_TEST_SUITE_P(Golden, GgufRoundTrip,
                         ::testing::Values("cohere2", "deepseek_v2_lite", "deepseek_v3", "deepseek_v3_yarn", "glm4",
                                           "glm4_moe", "gpt2", "gpt_neox", "gpt_oss", "granite", "llama_yarn",
                                           "minimax_m2", "ministral3", "olmo3", "qwen2_moe", "starcoder2"),
                         [](const auto& info) { return std::string(info.param); });

/// A golden family with other options: those of its folder are none that llama.cpp has.
struct Changed {
  const char* name;
  json options;
};

const std::vector<Changed>& changed() {
  const json full = {"full_attention", "full_attention", "full_attention"};
  static const std::vector<Changed> all{
      {"ernie4_5", {{"use_bias", false}}},
      {"ernie4_5_moe", {{"moe_layer_end_index", -1}}},
      {"exaone4", {{"head_dim", 4}, {"sliding_window", nullptr}, {"layer_types", full}}},
      {"gpt_oss",
       {{"rope_scaling",
         {{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 32}, {"truncate", true}}}}},
      {"lfm2", {{"conv_bias", false}}},
      {"llama4_text",
       {{"attention_chunk_size", 8192},
        {"attn_scale", 0.1},
        {"floor_scale", 8192},
        {"num_hidden_layers", 4},
        {"no_rope_layers", {1, 1, 1, 0}},
        {"layer_types", nullptr},
        {"moe_layers", {1, 3}}}},
      {"olmoe", {{"num_key_value_heads", 6}}},
      {"phi", {{"head_dim", 4}}},
      {"qwen3_5_moe_text", {{"linear_value_head_dim", 6}}},
      {"qwen3_5_text", {{"linear_value_head_dim", 6}}},
      {"qwen3_next", {{"linear_value_head_dim", 6}}},
      {"seed_oss", {{"mlp_bias", false}}},
      {"smollm3", {{"num_hidden_layers", 5}, {"no_rope_layers", {1, 1, 1, 0, 1}}, {"layer_types", nullptr}}}};
  return all;
}

TEST(GgufRoundTrips, of_options_that_llama_cpp_has_keep_config_and_tensors) {
  for (const Changed& each : changed()) {
    SCOPED_TRACE(each.name);
    const TempFolder folder;
    json config = json::parse(test::read_bytes(golden_folder(std::string("open/") + each.name) + "/config.json"));
    config.update(each.options);
    folder.write("m/config.json", config.dump());
    test::write_weights(folder / "m", ModelConfig::from_folder(folder / "m"),
                        [](int64_t i) { return 0.01f * static_cast<float>(i * 37 % 101) - 0.5f; });
    expect_same(folder / "m", written(folder / "m", folder));
  }
}

TEST(GgufRoundTrips, what_llama_cpp_lacks_is_refused_by_the_name_of_the_option) {
  const auto refusal = [](const std::string& name) {
    return test::message_of<ConfigError>([&] { written(golden_folder("open/" + name), TempFolder()); });
  };
  for (const auto& [name, message] : std::vector<std::pair<std::string, std::string>>{
           {"deepseek_v2", "deepseek2 scores groups of experts by the two best of each"},
           {"ernie4_5", "ernie4_5 has no bias of what attention gives"},
           {"ernie4_5_moe", "ernie4_5-moe has experts in every layer from one on"},
           {"exaone4", "exaone4 has heads that fill the hidden size"},
           {"lfm2", "lfm2 has no biases in convolutions"},
           {"llama4_text", "llama4 rotates in all layers but every fourth"},
           {"olmoe", "olmoe has as many heads of keys as of queries"},
           {"opt", "opt cannot be exported as GGUF; llama, mistral, "},
           {"phi", "phi2 has heads that fill the hidden size"},
           {"qwen3_next", "qwen3next has keys and values of one width"},
           {"seed_oss", "seed_oss has no biases in MLPs"},
           {"smollm3", "smollm3 rotates in all layers but every fourth"}})
    EXPECT_THAT(refusal(name), ::testing::HasSubstr(message)) << name;
}

}  // namespace
}  // namespace nought::gguf_round_trip_test
