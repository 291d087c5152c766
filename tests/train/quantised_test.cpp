// Models of quantised folders and GGUF files compute what transformers computes with their decoded weights, on every
// kind of mesh.
#include "support/golden_case.h"
#include "support/size.h"
#include "support/temp_folder.h"

#include "nought/engine/model_schedule.h"
#include "nought/weights/convert.h"
#include "nought/weights/gguf_weights.h"
#include "nought/weights/kept_codes.h"

namespace nought::quantised_test {
namespace {

using test::golden_folder;
using test::GoldenCase;
using test::MeshLayout;
using test::sharded;
using test::TrainingRank;

/// Probes without gradients, which these goldens do not have.
class Quantised : public ::testing::Test {
 protected:
  static void expect_on(const MeshLayout& mesh, const std::string& model, const std::string& golden,
                        bool keeps_codes = false) {
    test::TrainingCase on{.model = ModelConfig::from_folder(model), .mesh = mesh, .settings = {}};
    if (keeps_codes)
      on.prepare = [&](Decoder& decoder) { EXPECT_FALSE(keep_stored_codes(ModelSource(model), decoder).empty()); };
    on.load = [&](ShardedModel& sharded_model, Decoder&) { sharded_model.load(ModelSource(model).weights()); };
    SCOPED_TRACE(on.str());
    ProbeOutput output;
    on.on_ranks([&](TrainingRank& rank) {
      const ProbeInput input = read_probe_input(rank.context, golden, rank.decoder.config().vocab_size);
      ProbeOutput own =
          probe(rank.model, rank.decoder, input, false, {.schedule = schedule_at(rank.mesh, mesh.pipeline())});
      if (rank.is_first()) output = std::move(own);
    });
    test::expect_all_golden(output, golden);
  }
  static void expect_on_meshes(const std::string& model, const std::string& golden) {
    const ModelConfig config = ModelConfig::from_folder(model);
    expect_on({}, model, golden);
    expect_on(sharded(2, 3), model, golden);
    if (config.num_kv_heads > 1) expect_on({.sizes = {.tensor = 2}}, model, golden);
    if (config.num_layers > 1) expect_on({.sizes = {.pipeline = 2}}, model, golden);
    if (config.experts) expect_on({.sizes = {.shard = 2, .expert = 2}}, model, golden);
  }
};

class QuantisedFolder : public Quantised, public ::testing::WithParamInterface<const char*> {};
class QuantisedFile : public Quantised, public ::testing::WithParamInterface<const char*> {};

NOUGHT_SIZE(medium);
TEST_P(QuantisedFolder, logits_and_loss_are_those_of_the_decoded_weights_on_every_kind_of_mesh) {
  const std::string folder = golden_folder(std::string("quant/") + GetParam());
  expect_on_meshes(folder, folder + "/golden.safetensors");
}

INSTANTIATE_TEST_SUITE_P(Folders, QuantisedFolder,
                         ::testing::Values("gptq4", "gptq4_act", "awq4", "ct_int4", "ct_int8", "ct_fp8", "ct_nvfp4",
                                           "fp8_blocks", "mxfp4", "bnb_nf4", "bnb_int8"),
                         [](const auto& info) { return std::string(info.param); });

NOUGHT_SIZE(medium);
TEST_P(QuantisedFile, logits_and_loss_of_a_gguf_file_are_those_of_the_decoded_weights_on_every_kind_of_mesh) {
  const std::string file = golden_folder(std::string("quant/gguf/") + GetParam());
  expect_on_meshes(file + ".gguf", file + ".safetensors");
}

INSTANTIATE_TEST_SUITE_P(Files, QuantisedFile,
                         ::testing::Values("llama_q4_k_m", "llama_q8_0", "qwen2_q4_0", "qwen2_q8_0", "qwen3moe_q5_1"),
                         [](const auto& info) { return std::string(info.param); });

NOUGHT_SIZE(medium);
TEST_F(Quantised, the_codes_of_q8_0_may_be_kept_and_have_the_same_logits) {
  for (const char* name : {"llama_q8_0", "qwen2_q8_0"}) {
    const std::string file = golden_folder(std::string("quant/gguf/") + name);
    for (const MeshLayout& mesh : {MeshLayout{}, MeshLayout{.sizes = {.tensor = 2}}})
      expect_on(mesh, file + ".gguf", file + ".safetensors", /*keeps_codes=*/true);
  }
}

/// Ranks that share matrices hold them dense: blocks of 4 bits need not begin with their rows.
TEST_F(Quantised, the_codes_of_nf4_may_be_kept_and_have_the_same_logits) {
  const std::string folder = golden_folder("quant/bnb_nf4");
  expect_on({}, folder, folder + "/golden.safetensors", /*keeps_codes=*/true);
  expect_on(sharded(2, 3), folder, folder + "/golden.safetensors", /*keeps_codes=*/true);
}

/// One product of rows in several formats (Q4_K_M), rotated heads, stacked experts; packed codes of folders, with zero
/// points and without.
NOUGHT_SIZE(medium);
TEST_F(Quantised, the_blocks_of_other_formats_may_be_kept_and_have_the_same_logits) {
  for (const char* name : {"llama_q4_k_m", "qwen2_q4_0", "qwen3moe_q5_1"}) {
    const std::string file = golden_folder(std::string("quant/gguf/") + name);
    expect_on({}, file + ".gguf", file + ".safetensors", /*keeps_codes=*/true);
    expect_on(sharded(2, 3), file + ".gguf", file + ".safetensors", /*keeps_codes=*/true);
    expect_on({.sizes = {.pipeline = 2}}, file + ".gguf", file + ".safetensors", /*keeps_codes=*/true);
  }
  for (const char* name : {"gptq4", "awq4", "ct_int4", "ct_int8", "ct_fp8", "ct_nvfp4", "fp8_blocks", "bnb_int8"}) {
    const std::string folder = golden_folder(std::string("quant/") + name);
    expect_on({}, folder, folder + "/golden.safetensors", /*keeps_codes=*/true);
  }
  const std::string gptq = golden_folder("quant/gptq4"), moe = golden_folder("quant/gguf/qwen3moe_q5_1");
  expect_on({.sizes = {.tensor = 2}}, gptq, gptq + "/golden.safetensors", /*keeps_codes=*/true);
  expect_on({.sizes = {.shard = 2, .expert = 2}}, moe + ".gguf", moe + ".safetensors", /*keeps_codes=*/true);
}

std::vector<float> values_of(const StateSource& source, const Parameter& parameter, Memory& memory) {
  const Tensor values = Tensor::empty(memory, parameter.placement.global, DType::f32, Category::workspace);
  source.fill(StateKind::master, parameter, Interval{0, values.numel()}, values);
  return values.to_vector<float>();
}

/// Rows of rotated heads, fused and transposed matrices, stacked experts, norms that are stored plus one.
NOUGHT_SIZE(medium);
TEST(GgufWeights, weights_of_every_family_come_back_from_a_file_of_them) {
  const auto memory = Memory::create();
  const test::TempFolder folder;
  int families = 0;
  for (const char* name : test::kGoldenFamilies) {
    SCOPED_TRACE(name);
    const ModelSource source(golden_folder(name));
    try {
      convert_to_gguf(source, folder / "m.gguf", gguf_mixture(GgufType::f32), *memory);
    } catch (const ConfigError&) {
      continue;  // llama.cpp cannot compute it
    }
    const GgufWeights read(folder / "m.gguf", source.config(), source.model());
    EXPECT_TRUE(read.unused().empty());
    for (const auto& unit : source.model().units())
      for (const Parameter& parameter : unit->parameters()) {
        const std::vector<float> got = values_of(read, parameter, *memory);
        const std::vector<float> expected = values_of(source.weights(), parameter, *memory);
        for (size_t i = 0; i < got.size(); ++i)
          ASSERT_NEAR(got[i], expected[i], std::abs(expected[i]) * 1e-6 + 1e-7) << parameter.name << " " << i;
      }
    ++families;
  }
  EXPECT_GT(families, 14);
}

}  // namespace
}  // namespace nought::quantised_test
