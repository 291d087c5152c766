// The metadata of a GGUF file mean the config.json that the model has.
#include "nought/models/gguf_config.h"

#include "support/golden.h"
#include "support/message_of.h"
#include "support/size.h"
#include "support/temp_folder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "nought/base/json.h"
#include "nought/io/gguf_writer.h"
#include "nought/models/gguf_metadata.h"
#include "nought/models/gguf_model.h"

namespace nought::gguf_config_test {
namespace {

using test::message_of;
using test::TempFolder;
using testing::HasSubstr;

const char* const kFiles[] = {"llama_q4_k_m", "llama_q8_0", "qwen2_q4_0", "qwen2_q8_0", "qwen3moe_q5_1"};

TEST(GgufConfig, golden_files_mean_their_config_json) {
  for (const char* name : kFiles) {
    SCOPED_TRACE(name);
    const std::string path = test::golden_folder(std::string("quant/gguf/") + name);
    ModelConfig config = gguf_config(GgufFile(path + ".gguf"));
    ModelConfig expected = ModelConfig::from_json(Json::parse(test::read_bytes(path + ".json")));
    for (ModelConfig* each : {&config, &expected}) {
      each->notes.clear();
      each->bos_token_id.reset(), each->eos_token_ids.clear();  // those of the tokenizer, in the file
    }
    EXPECT_NEAR(config.norm_eps, expected.norm_eps, 1e-12);
    config.norm_eps = expected.norm_eps;  // the file has floats
    config.experts ? void(config.experts->auxiliary_coefficient = expected.experts->auxiliary_coefficient) : void();
    EXPECT_EQ(config.to_hf_json(DType::f32), expected.to_hf_json(DType::f32));
    EXPECT_EQ(config, expected);
  }
}

/// Writes the header of a model: its tensors stay zero.
void write_header(const std::filesystem::path& path, const ModelConfig& config) {
  const Decoder model(config);
  GgufModelWriter writer(path, model, gguf_mixture(GgufType::f32), "m", {});
  const auto memory = Memory::create();
  for (const auto& unit : model.units())
    for (const Parameter& parameter : unit->parameters()) {
      const int64_t count = parameter.placement.global.numel();
      const Tensor zeros = Tensor::empty(*memory, {count}, DType::f32, Category::workspace);
      std::fill_n(zeros.data<float>(), count, 0.0f);
      writer.write(parameter.name, {0, count}, zeros);
    }
  writer.finish();
}

NOUGHT_SIZE(medium);
TEST(GgufConfig, every_family_that_is_exported_is_read_again_as_the_same_model) {
  const TempFolder folder;
  std::vector<const char*> names(std::begin(test::kGoldenFamilies), std::end(test::kGoldenFamilies));
  names.insert(names.end(), std::begin(test::kGoldenOptions), std::end(test::kGoldenOptions));
  for (const char* name : names) {
    const ModelConfig config = ModelConfig::from_folder(test::golden_folder(name));
    const auto& families = gguf_families();
    if (std::find(families.begin(), families.end(), config.family) == families.end()) continue;
    SCOPED_TRACE(name);
    try {
      write_header(folder / "m.gguf", config);
    } catch (const ConfigError&) {
      continue;  // llama.cpp cannot compute it
    }
    const ModelConfig read = ModelConfig::from_folder(folder / "m.gguf");
    EXPECT_EQ(read.parameter_count(), config.parameter_count());
    EXPECT_EQ(read.rope.kind, config.rope.kind);
    const std::vector<double> a = read.rope.frequencies(24), b = config.rope.frequencies(24);
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i] / b[i], 1, 1e-5);
    EXPECT_NEAR(read.rope.table_scale(), config.rope.table_scale(), 1e-6);
    if (config.experts) {
      EXPECT_EQ(read.experts->rule.top_k, config.experts->rule.top_k);
      EXPECT_EQ(read.experts->rule.normalise, config.experts->rule.normalise);
    }
    if (config.family != "mistral" && config.family != "qwen2") {  // llama.cpp ignores their windows
      EXPECT_EQ(read.sliding_windows, config.sliding_windows);
    }
    EXPECT_NEAR(read.attention_softcap, config.attention_softcap, 1e-5);
    EXPECT_NEAR(read.logit_softcap, config.logit_softcap, 1e-5);
    EXPECT_EQ(read.parallel_residual, config.parallel_residual);
  }
}

TEST(GgufConfig, what_is_not_read_is_refused_by_name) {
  const TempFolder folder;
  const auto refusal = [&](const GgufMetadata& metadata) {
    GgufWriter(folder / "x.gguf", metadata, {}).finish();
    return message_of<ConfigError>([&] { gguf_config(GgufFile(folder / "x.gguf")); });
  };
  EXPECT_THAT(refusal({}), HasSubstr("has no general.architecture: it is no model"));
  EXPECT_THAT(refusal({{"general.architecture", std::string("mamba")}}),
              HasSubstr("the architecture \"mamba\" is not read; read are llama, qwen2"));
  EXPECT_THAT(refusal({{"general.architecture", std::string("llama")}}), HasSubstr("has no llama.embedding_length"));
}

}  // namespace
}  // namespace nought::gguf_config_test
