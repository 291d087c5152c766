#include "nought/quantize/quantize_model.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>

#include "support/golden.h"
#include "support/message_of.h"
#include "support/size.h"
#include "support/temp_folder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "nought/io/files.h"
#include "nought/io/safetensors.h"
#include "nought/quantize/compare_models.h"
#include "nought/quantize/gptq.h"
#include "nought/quantize/loaded_units.h"
#include "nought/quantize/product_inputs.h"
#include "nought/quantize/workspace_copy.h"
#include "nought/train/probe.h"

namespace nought::quantize_model_test {
namespace {

using namespace ::testing;
using test::golden_folder;
using test::message_of;
using test::TempFolder;

/// The golden batch of a folder.
std::vector<TokenRow> golden_rows(const std::string& folder, const Context& context) {
  const ModelConfig config = ModelConfig::from_folder(folder);
  const ProbeInput input = read_probe_input(context, folder + "/golden.safetensors", config.vocab_size);
  std::vector<TokenRow> rows;
  const int64_t length = input.ids.dim(1);
  for (int64_t row = 0; row < input.ids.dim(0); ++row) {
    const int64_t* ids = input.ids.data<int64_t>() + row * length;
    TokenRow& added = rows.emplace_back(TokenRow{{ids, ids + length}, {ids + 1, ids + length}});
    added.targets.push_back(kIgnoredTarget);
  }
  return rows;
}

std::vector<float> values_of(const ModelSource& source, const std::string& name, const Context& context) {
  for (const auto& unit : source.model().units())
    for (const Parameter& parameter : unit->parameters()) {
      if (parameter.name != name) continue;
      const int64_t numel = parameter.placement.global.numel();
      const Tensor values = context.empty({numel}, DType::f32);
      source.weights().fill(StateKind::master, parameter, Interval{0, numel}, values);
      return values.to_vector<float>();
    }
  ADD_FAILURE() << name;
  return {};
}

class QuantizeModel : public Test {
 protected:
  QuantizeReport quantize(const std::string& model, const QuantizeOptions& options) {
    return quantize_model(ModelSource(golden_folder(model)), out_, options, context_, [](int64_t, int64_t) {});
  }
  /// With the golden batch to go by.
  QuantizeOptions by_inputs(const std::string& model) {
    QuantizeOptions options{.rule = {.group_size = 8}};
    options.calibration = golden_rows(golden_folder(model), context_);
    return options;
  }

  Context context_ = Context::cpu();
  TempFolder folder_;
  std::filesystem::path out_ = folder_.path() / "out";
};

NOUGHT_SIZE(medium);
TEST_F(QuantizeModel, every_format_is_read_as_the_nearest_codes_of_the_weights) {
  const ModelSource source(golden_folder("open/llama"));
  const std::string name = "model.layers.0.mlp.down_proj.weight";
  const std::vector<float> exact = values_of(source, name, context_);
  const int64_t columns = source.config().intermediate_size, rows = source.config().hidden_size;
  struct Case {
    int bits;
    bool symmetric;
    int64_t group;
  };
  constexpr Case kCases[] = {{2, true, 8}, {3, false, -1}, {4, true, -1}, {4, false, 8}, {8, true, 8}};
  for (const std::string format : {"gptq", "awq", "compressed-tensors"})
    for (const auto& [bits, symmetric, group] : kCases) {
      if ((format == "awq" && bits != 4) || (rows * bits) % 32 != 0) continue;
      SCOPED_TRACE(fmt::format("{}, {} bits, {}, groups of {}", format, bits, symmetric, group));
      const MatrixRule rule{.grid = {.bits = bits, .symmetric = symmetric}, .group_size = group};
      std::filesystem::remove_all(out_);
      quantize("open/llama", {.format = format, .method = RoundingMethod::rtn, .rule = rule});
      const Tensor expected = context_.upload<float>({rows, columns}, exact);
      round_to_nearest(expected, rule);
      const ModelSource read(out_.string());
      EXPECT_EQ(values_of(read, name, context_), expected.to_vector<float>());
      for (const char* dense : {"model.norm.weight", "lm_head.weight", "model.embed_tokens.weight"})
        EXPECT_EQ(values_of(read, dense, context_), values_of(source, dense, context_));
    }
}

NOUGHT_SIZE(medium);
TEST_F(QuantizeModel, bytes_and_floats_are_read_as_the_nearest_codes_of_the_weights) {
  const ModelSource source(golden_folder("open/llama"));
  const std::string name = "model.layers.0.mlp.down_proj.weight";
  const int64_t columns = source.config().intermediate_size, rows = source.config().hidden_size;
  for (const std::string format : {"int8", "fp8", "mxfp4"}) {
    SCOPED_TRACE(format);
    MatrixRule rule = make_folder_format(format)->usual();
    if (format == "fp8") rule.group_size = 20;  // the last squares are short
    std::filesystem::remove_all(out_);
    const QuantizeReport report =
        quantize("open/llama", {.format = format, .method = RoundingMethod::rtn, .rule = rule});
    const Tensor expected = context_.upload<float>({rows, columns}, values_of(source, name, context_));
    round_to_nearest(expected, rule);
    EXPECT_EQ(values_of(ModelSource(out_.string()), name, context_), expected.to_vector<float>());
    const double most = format == "mxfp4" ? 0.13 : format == "fp8" ? 0.03 : 0.012;
    for (const auto& [kind, of] : report.kinds)
      EXPECT_LT(std::sqrt(of.error / static_cast<double>(of.matrices)), most) << kind;
  }
}

NOUGHT_SIZE(medium);
TEST_F(QuantizeModel, stacks_of_experts_become_those_that_gpt_oss_is_published_in) {
  const std::string golden = golden_folder("quant/mxfp4");
  const QuantizeOptions options{
      .format = "mxfp4", .method = RoundingMethod::rtn, .rule = make_folder_format("mxfp4")->usual()};
  quantize("quant/mxfp4", options);
  const SafetensorsFile written(out_ / "model.safetensors"), published(golden + "/model.safetensors");
  for (const TensorEntry& entry : published.entries()) {
    ASSERT_NE(written.find(entry.name), nullptr) << entry.name;
    EXPECT_EQ(written.at(entry.name).shape, entry.shape) << entry.name;
  }
  EXPECT_EQ(written.entries().size(), published.entries().size());
  for (const char* name : {"model.layers.0.mlp.experts.gate_up_proj", "model.layers.1.mlp.experts.down_proj"})
    EXPECT_EQ(values_of(ModelSource(out_.string()), name, context_), values_of(ModelSource(golden), name, context_))
        << "what is in few bits already stays as it is";
}

NOUGHT_SIZE(medium);
TEST_F(QuantizeModel, gptq_loses_less_in_floats_too) {
  const ModelSource source(golden_folder("open/llama"));
  for (const char* format : {"fp8", "mxfp4"}) {
    std::map<RoundingMethod, double> divergence;
    for (const RoundingMethod method : {RoundingMethod::rtn, RoundingMethod::gptq}) {
      QuantizeOptions options = by_inputs("open/llama");
      options.format = format, options.method = method, options.rule = make_folder_format(format)->usual();
      std::filesystem::remove_all(out_);
      quantize("open/llama", options);
      divergence[method] = compare_models(source, ModelSource(out_.string()), options.calibration, context_).divergence;
    }
    EXPECT_LT(divergence[RoundingMethod::gptq], divergence[RoundingMethod::rtn]) << format;
  }
}

NOUGHT_SIZE(medium);
TEST_F(QuantizeModel, smoothing_moves_what_is_large_in_inputs_to_the_weights) {
  QuantizeOptions options = by_inputs("open/llama");
  options.format = "int8", options.method = RoundingMethod::smoothquant;
  options.rule = make_folder_format("int8")->usual();
  const QuantizeReport report = quantize("open/llama", options);
  EXPECT_THAT(report.notes, Not(Contains(HasSubstr("were not scaled"))));
  const ModelSource source(golden_folder("open/llama")), smooth(out_.string());
  EXPECT_NE(values_of(smooth, "model.layers.0.input_layernorm.weight", context_),
            values_of(source, "model.layers.0.input_layernorm.weight", context_));
  EXPECT_LT(compare_models(source, smooth, options.calibration, context_).divergence, 3e-4);
  std::ifstream file(out_ / "config.json");
  const auto config = nlohmann::json::parse(file).at("quantization_config");
  EXPECT_EQ(config.at("config_groups").at("group_0").at("input_activations").at("dynamic"), true);
}

TEST_F(QuantizeModel, inputs_of_a_product_are_those_of_all_its_parameters) {
  const std::string folder = golden_folder("open/llama");
  const ModelSource source(folder);
  Decoder decoder(source.config());
  LoadedUnits units(context_, decoder, source.weights());
  const DecoderSections sections(decoder);
  CalibrationRows rows(decoder, context_, golden_rows(folder, context_));
  rows.pass(sections.embedding, context_);
  const Section& block = sections.blocks.front();
  units.hold(*block.unit);
  ProductInputs inputs(context_, *block.unit, [&](size_t segment) { return units.values(*block.unit, segment); });
  inputs.want([](const ProductInputs::Product&) { return true; });
  rows.look(block, inputs.watched());
  std::map<std::string, const InputMoments*> of;
  int64_t tokens = 0;
  for (int64_t row = 0; row < rows.size(); ++row) tokens += rows.batch(row).input_ids.numel();
  for (size_t i = 0; i < block.unit->parameters().size(); ++i) {
    const std::string name = block.unit->parameters()[i].name;
    of[name.substr(name.find(".0.") + 3)] = inputs.of(i);
  }
  ASSERT_NE(of["self_attn.q_proj.weight"], nullptr);
  EXPECT_EQ(of["self_attn.q_proj.weight"], of["self_attn.k_proj.weight"]);
  EXPECT_EQ(of["self_attn.q_proj.weight"], of["self_attn.v_proj.weight"]);
  EXPECT_EQ(of["mlp.gate_proj.weight"], of["mlp.up_proj.weight"]);
  EXPECT_NE(of["self_attn.o_proj.weight"], of["mlp.down_proj.weight"]);
  EXPECT_EQ(of["input_layernorm.weight"], nullptr);
  EXPECT_EQ(inputs.seen().size(), 4u);
  const InputMoments& moments = *of["mlp.down_proj.weight"];
  EXPECT_EQ(moments.rows, tokens);
  EXPECT_EQ(moments.sums.shape(), (Shape{source.config().intermediate_size, source.config().intermediate_size}));
  for (int64_t i = 0; i < moments.sums.dim(0); ++i)
    EXPECT_GE(moments.sums.span<float>()[static_cast<size_t>(i * (moments.sums.dim(0) + 1))], 0);
}

NOUGHT_SIZE(medium);
TEST_F(QuantizeModel, gptq_and_awq_predict_nearer_to_the_model_than_the_nearest_codes) {
  for (const char* model : {"open/llama", "open/qwen3_moe", "open/gemma2"}) {
    const bool has_experts = ModelConfig::from_folder(golden_folder(model)).experts.has_value();
    const ModelSource source(golden_folder(model));
    std::map<RoundingMethod, double> divergence;
    for (const RoundingMethod method : {RoundingMethod::rtn, RoundingMethod::gptq, RoundingMethod::awq}) {
      QuantizeOptions options = by_inputs(model);
      options.method = method;
      std::filesystem::remove_all(out_);
      const QuantizeReport report = quantize(model, options);
      EXPECT_GT(report.kinds.size(), 3u);
      EXPECT_LT(report.bytes, report.dense_bytes);
      EXPECT_THAT(report.notes, Not(Contains(HasSubstr("were not scaled"))));
      divergence[method] = compare_models(source, ModelSource(out_.string()), options.calibration, context_).divergence;
    }
    EXPECT_LT(divergence[RoundingMethod::gptq], divergence[RoundingMethod::rtn]) << model;
    // A handful of tokens comes to an expert: the scales that are best for them say little.
    if (has_experts) continue;
    EXPECT_LT(divergence[RoundingMethod::awq], divergence[RoundingMethod::rtn]) << model;
  }
}

NOUGHT_SIZE(medium);
TEST_F(QuantizeModel, kinds_are_those_of_all_layers_and_experts) {
  const QuantizeReport report = quantize(
      "open/qwen3_moe", {.format = "compressed-tensors", .method = RoundingMethod::rtn, .rule = {.group_size = -1}});
  const ModelConfig config = ModelConfig::from_folder(golden_folder("open/qwen3_moe"));
  ASSERT_TRUE(report.kinds.contains("mlp.experts.N.down_proj"));
  EXPECT_EQ(report.kinds.at("self_attn.o_proj").matrices, config.num_layers);
}

NOUGHT_SIZE(medium);
TEST_F(QuantizeModel, what_is_skipped_stays_dense_and_the_config_says_so) {
  QuantizeOptions options{.method = RoundingMethod::rtn, .rule = {.group_size = 8}};
  options.skip = {"layers\\.0\\.mlp", "o_proj"};
  for (const std::string& format : folder_format_names()) {
    options.format = format;
    options.rule = make_folder_format(format)->usual();
    if (format == "gptq" || format == "awq" || format == "compressed-tensors") options.rule.group_size = 8;
    std::filesystem::remove_all(out_);
    quantize("open/llama", options);
    const ModelSource source(golden_folder("open/llama")), read(out_.string());
    for (const char* name : {"model.layers.0.mlp.up_proj.weight", "model.layers.1.self_attn.o_proj.weight"})
      EXPECT_EQ(values_of(read, name, context_), values_of(source, name, context_));
    EXPECT_NE(values_of(read, "model.layers.1.mlp.down_proj.weight", context_),
              values_of(source, "model.layers.1.mlp.down_proj.weight", context_));
    std::ifstream config(out_ / "config.json");
    const std::string text(std::istreambuf_iterator<char>(config), {});
    EXPECT_THAT(text, HasSubstr("mlp")) << "the modules that are dense";
  }
}

TEST_F(QuantizeModel, experts_are_named_one_by_one_where_a_reader_knows_modules_by_their_layer) {
  QuantizeOptions options{.method = RoundingMethod::rtn, .rule = {.grid = {.bits = 8}, .group_size = 8}};
  options.skip = {"o_proj"};
  quantize("open/qwen3_moe", options);
  std::ifstream file(out_ / "config.json");
  const auto config = nlohmann::json::parse(file).at("quantization_config").at("modules_in_block_to_quantize");
  EXPECT_THAT(config, Contains(nlohmann::json::array({"mlp.experts.0.down_proj"})));
  EXPECT_THAT(config, Contains(nlohmann::json::array({"self_attn.q_proj"})));
  EXPECT_THAT(config, Not(Contains(nlohmann::json::array({"self_attn.o_proj"}))));
}

TEST_F(QuantizeModel, a_command_that_was_killed_goes_on_with_the_same_bytes) {
  for (const RoundingMethod method : {RoundingMethod::gptq, RoundingMethod::awq}) {
    QuantizeOptions options = by_inputs("open/llama");
    options.method = method;
    const ModelSource source(golden_folder("open/llama"));
    const auto made_in = [&](const std::filesystem::path& folder, int64_t killed_at) {
      std::vector<int64_t> blocks;
      quantize_model(source, folder, options, context_, [&](int64_t block, int64_t /*blocks*/) {
        require<Error>(block != killed_at, "killed");
        blocks.push_back(block);
      });
      return blocks;
    };
    const QuantizeReport whole = quantize("open/llama", options);
    const std::filesystem::path again = folder_.path() / "again", rest = folder_.path() / "again.partial";
    EXPECT_THAT([&] { made_in(again, 0); }, ThrowsMessage<Error>("killed"));
    EXPECT_FALSE(exists(rest)) << "no block was done";
    EXPECT_THAT([&] { made_in(again, 1); }, ThrowsMessage<Error>("killed"));
    EXPECT_FALSE(exists(again));
    options.rule.damping = 0.5;
    EXPECT_THAT(message_of<ConfigError>([&] { made_in(again, -1); }),
                HasSubstr("again.partial holds 1 blocks that were made with another --damping"));
    options.rule.damping = MatrixRule().damping;
    EXPECT_THAT(made_in(again, -1), ElementsAre(1));
    EXPECT_FALSE(exists(rest));
    EXPECT_EQ(read_bytes(again / "model.safetensors"), read_bytes(out_ / "model.safetensors"));
    EXPECT_EQ(read_bytes(again / "config.json"), read_bytes(out_ / "config.json"));
    std::filesystem::remove_all(again);
  }
}

TEST_F(QuantizeModel, what_was_made_otherwise_is_begun_anew_where_that_is_wanted) {
  QuantizeOptions options = by_inputs("open/llama");
  const auto run = [&](const std::filesystem::path& folder, int64_t killed_at) {
    return quantize_model(ModelSource(golden_folder("open/llama")), folder, options, context_,
                          [&](int64_t block, int64_t /*blocks*/) { require<Error>(block != killed_at, "killed"); });
  };
  EXPECT_THAT([&] { run(out_, 1); }, ThrowsMessage<Error>("killed"));
  options.method = RoundingMethod::rtn, options.calibration.clear(), options.anew = true;
  const QuantizeReport report = run(out_, -1), plain = run(folder_.path() / "plain", -1);
  EXPECT_EQ(read_bytes(out_ / "model.safetensors"), read_bytes(folder_.path() / "plain/model.safetensors"));
  EXPECT_EQ(report.kinds.at("mlp.up_proj").error, plain.kinds.at("mlp.up_proj").error);
}

TEST_F(QuantizeModel, a_model_is_nowhere_from_itself) {
  const std::string folder = golden_folder("open/llama");
  const std::vector<TokenRow> rows = golden_rows(folder, context_);
  const ModelSource source(folder);
  const ModelComparison same = compare_models(source, source, rows, context_);
  EXPECT_EQ(same.divergence, 0);
  EXPECT_EQ(same.same_top, 1);
  EXPECT_EQ(same.loss, same.other_loss);
  const SafetensorsFile golden(folder + "/golden.safetensors");
  EXPECT_NEAR(same.loss, golden.load("loss", *context_.memory).item(), 5e-6);
}

TEST_F(QuantizeModel, what_cannot_be_is_refused_by_its_name) {
  const auto refused = [&](const char* model, const QuantizeOptions& options) {
    return message_of<ConfigError>([&] { quantize(model, options); });
  };
  EXPECT_THAT(refused("open/llama", {}), HasSubstr("--calibration FILE"));
  EXPECT_THAT(refused("open/llama", {.method = RoundingMethod::awq, .rule = {}}),
              HasSubstr("--method awq goes by the inputs"));
  const QuantizeOptions rtn{.method = RoundingMethod::rtn, .rule = {.group_size = 8}};
  QuantizeOptions options = rtn;
  options.format = "gptq", options.rule.grid.bits = 5;
  EXPECT_THAT(refused("open/llama", options), HasSubstr("2, 3, 4 or 8 bits, got 5"));
  options = rtn, options.format = "awq", options.rule.act_order = true;
  EXPECT_THAT(refused("open/llama", options), HasSubstr("--desc-act"));
  options = rtn, options.skip = {"no_proj"};
  EXPECT_THAT(refused("open/llama", options), HasSubstr("--skip no_proj"));
  options = rtn, options.skip = {"("};
  EXPECT_THAT(refused("open/llama", options), HasSubstr("--skip ("));
  options = rtn, options.format = "exl2";
  EXPECT_THAT(refused("open/llama", options), HasSubstr("gptq, awq, compressed-tensors"));
  options = rtn, options.format = "fp8", options.method = RoundingMethod::awq;
  options.calibration = by_inputs("open/llama").calibration, options.rule = make_folder_format("fp8")->usual();
  EXPECT_THAT(refused("open/llama", options), HasSubstr("--format fp8 has floats: gptq or rtn"));
  options.format = "mxfp4", options.method = RoundingMethod::gptq, options.rule = make_folder_format("mxfp4")->usual();
  options.calibration = golden_rows(golden_folder("quant/mxfp4"), context_);
  EXPECT_THAT(refused("quant/mxfp4", options), HasSubstr("is a stack of experts"));
  EXPECT_THAT(refused("open/gpt2", rtn), HasSubstr("[in, out]"));
  EXPECT_THAT(refused("encoders/bert", rtn), HasSubstr("is an encoder"));
  options = rtn, options.format = "awq", options.rule.group_size = 7;
  EXPECT_THAT(refused("open/llama", options), HasSubstr("none fits --format awq"));
}

}  // namespace
}  // namespace nought::quantize_model_test
