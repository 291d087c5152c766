#include "nought/quantize/folds.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>

#include "support/golden.h"
#include "support/size.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/quantize/block_scaler.h"
#include "nought/quantize/gptq.h"
#include "nought/quantize/input_scales.h"

namespace nought::folds_test {
namespace {

using namespace ::testing;
using test::golden_folder;

/// The first block of a golden model, with a row of tokens before it.
struct Block {
  explicit Block(const std::string& model)
      : source(golden_folder(model)),
        decoder(source.config()),
        units(context, decoder, source.weights()),
        sections(decoder),
        rows(decoder, context, std::vector<TokenRow>{tokens()}),
        unit(*sections.blocks.front().unit) {
    rows.pass(sections.embedding, context);
    units.hold(unit);
    inputs =
        std::make_unique<ProductInputs>(context, unit, [&](size_t segment) { return units.values(unit, segment); });
    inputs->want([](const ProductInputs::Product&) { return true; });
    rows.look(sections.blocks.front(), inputs->watched());
  }
  std::vector<Fold> folds(const std::function<bool(const Parameter&)>& becomes_codes) const {
    return folds_of(source.config(), 0, unit, *inputs, becomes_codes);
  }
  std::string names(const std::vector<size_t>& parameters) const {
    std::string all;
    for (const size_t i : parameters) {
      const std::string& name = unit.parameters()[i].name;
      all += (all.empty() ? "" : " ") + name.substr(name.find(".0.") + 3);
    }
    return all;
  }
  std::map<std::string, std::string> names(const std::vector<Fold>& folds) const {
    std::map<std::string, std::string> all;
    for (const Fold& fold : folds) all[names(fold.divided)] = names(fold.matrices);
    return all;
  }
  std::vector<float> result() { return rows.result(sections.blocks.front(), context, 0).value.to_vector<float>(); }

  static TokenRow tokens() {
    TokenRow row;
    for (int32_t i = 0; i < 12; ++i) row.inputs.push_back(1 + 7 * i % 50), row.targets.push_back(kIgnoredTarget);
    return row;
  }

  Context context = Context::cpu();
  ModelSource source;
  Decoder decoder;
  LoadedUnits units;
  DecoderSections sections;
  CalibrationRows rows;
  const Unit& unit;
  std::unique_ptr<ProductInputs> inputs;
};

bool is_matrix(const Parameter& parameter) {
  return parameter.role == ParameterRole::matrix || parameter.role == ParameterRole::expert;
}

TEST(Folds, a_norm_divides_what_multiplies_its_output_and_rows_what_gets_theirs) {
  const Block block("open/llama");
  EXPECT_THAT(block.names(block.folds(is_matrix)),
              UnorderedElementsAre(Pair("input_layernorm.weight",
                                        "self_attn.q_proj.weight self_attn.k_proj.weight self_attn.v_proj.weight"),
                                   Pair("post_attention_layernorm.weight", "mlp.gate_proj.weight mlp.up_proj.weight"),
                                   Pair("self_attn.v_proj.weight", "self_attn.o_proj.weight"),
                                   Pair("mlp.up_proj.weight", "mlp.down_proj.weight")));
}

TEST(Folds, a_matrix_that_stays_dense_is_in_none) {
  const Block block("open/llama");
  const auto folds = block.folds([](const Parameter& parameter) {
    return is_matrix(parameter) && parameter.name.find("k_proj") == std::string::npos;
  });
  EXPECT_FALSE(block.names(folds).contains("input_layernorm.weight"));
  EXPECT_TRUE(block.names(folds).contains("self_attn.v_proj.weight"));
}

/// Whatever the scales: biases, heads that share values, norms of weight + 1, joined matrices, experts, an MLP beside
/// attention.
NOUGHT_SIZE(medium);
TEST(Folds, a_block_computes_what_it_did) {
  for (const char* model : {"open/llama", "open/qwen2", "open/gemma2", "open/phi3", "open/qwen3_moe", "open/cohere2"}) {
    SCOPED_TRACE(model);
    Block block(model);
    const std::vector<Fold> folds = block.folds(is_matrix);
    EXPECT_GE(folds.size(), 2u);
    const auto values = [&](size_t index) { return block.units.matrix_of(block.unit, block.unit.parameters()[index]); };
    const auto exact = [](size_t /*index*/, const Tensor& now) { return now; };
    const std::vector<float> before = block.result();
    for (const Fold& fold : folds) {
      SCOPED_TRACE(block.names(fold.divided));
      std::vector<float> scales(static_cast<size_t>(*std::max_element(fold.source.begin(), fold.source.end()) + 1));
      for (size_t i = 0; i < scales.size(); ++i) scales[i] = 0.5f + static_cast<float>(i % 7) / 4;
      const std::vector<float> weight = values(fold.matrices.front()).to_vector<float>();
      AppliedFold applied(fold, scales, values, exact);
      EXPECT_NE(values(fold.matrices.front()).to_vector<float>(), weight);
      EXPECT_THAT(block.result(), Pointwise(FloatNear(2e-5f), before));
      applied.undo();
      EXPECT_EQ(values(fold.matrices.front()).to_vector<float>(), weight);
    }
    EXPECT_EQ(block.result(), before);
  }
}

TEST(Folds, columns_make_up_for_a_norm_that_the_folder_rounds) {
  Block block("open/llama");
  const std::vector<Fold> folds = block.folds(is_matrix);
  const Fold& fold = folds.front();
  ASSERT_TRUE(fold.by_norm);
  const std::vector<float> before = block.result();
  const std::vector<float> scales(fold.source.size(), 1.23456f);
  AppliedFold applied(
      fold, scales, [&](size_t index) { return block.units.matrix_of(block.unit, block.unit.parameters()[index]); },
      [&](size_t /*index*/, const Tensor& now) {
        const Tensor rounded = block.context.empty(now.shape(), DType::bf16),
                     back = block.context.empty(now.shape(), DType::f32);
        block.context.run(Cast{.x = now, .y = rounded});
        block.context.run(Cast{.x = rounded, .y = back});
        return back;
      });
  EXPECT_THAT(applied.of_columns(), Not(Each(FloatEq(1.23456f))));
  EXPECT_THAT(applied.of_columns(), Each(FloatNear(1.23456f, 0.01f)));
  EXPECT_THAT(block.result(), Pointwise(FloatNear(2e-5f), before));
}

TEST(InputScales, a_column_with_large_inputs_is_rounded_finer) {
  const Context context = Context::cpu();
  constexpr int64_t kRows = 8, kColumns = 16;
  InputMoments inputs{.sums = context.zeros({kColumns, kColumns}, DType::f32), .rows = 1};
  std::vector<int64_t> source;
  for (int64_t i = 0; i < kColumns; ++i) {
    const double x = i == 3 ? 50 : 0.5;
    inputs.sums.data<float>()[i * (kColumns + 1)] = static_cast<float>(x * x);
    inputs.magnitudes.push_back(x), inputs.largest.push_back(static_cast<float>(x)), source.push_back(i);
  }
  const Tensor weights = context.empty({kRows, kColumns}, DType::f32);
  for (int64_t i = 0; i < weights.numel(); ++i)
    weights.data<float>()[i] = (i % kColumns == 3 ? 0.1f : 1.0f) * std::sin(static_cast<float>(i * i + 1));
  const MatrixRule rule{.grid = {.bits = 3}, .group_size = -1};
  const std::vector<float> scales = activation_aware_scales(context, std::vector{weights}, inputs, source, rule);
  EXPECT_GT(scales[3], 2 * scales[0]);
  const auto loss = [&](bool scaled) {
    const Tensor rounded = context.empty(weights.shape(), DType::f32);
    context.copy(weights, rounded);
    std::vector<float> inverse;
    for (const float scale : scales) inverse.push_back(1 / scale);
    if (scaled) scale_columns(rounded, scales);
    round_to_nearest(rounded, rule);
    if (scaled) scale_columns(rounded, inverse);
    return output_loss(context, weights, rounded, inputs.sums);
  };
  EXPECT_LT(loss(true), 0.5 * loss(false));
}

TEST(InputScales, smoothing_leaves_inputs_and_weights_alike) {
  const Context context = Context::cpu();
  const Tensor weights = context.upload<float>({2, 3}, std::vector<float>{1, -4, 0.5f, -0.25f, 2, 1});
  InputMoments inputs{.sums = context.zeros({3, 3}, DType::f32), .magnitudes = {1, 1, 1}, .largest = {4, 1, 16}};
  const std::vector<int64_t> source{0, 1, 2};
  const std::vector<float> scales = smoothing_scales(std::vector{weights}, inputs, source, 0.5);
  EXPECT_THAT(scales, ElementsAre(FloatEq(2), FloatEq(0.5f), FloatEq(4)));
  divide_inputs(inputs, scales);
  EXPECT_THAT(inputs.largest, ElementsAre(FloatEq(2), FloatEq(2), FloatEq(4)));
  const std::vector<int64_t> shared{0, 0, 1};
  EXPECT_THAT(smoothing_scales(std::vector{weights}, inputs, shared, 1), ElementsAre(FloatEq(2), FloatEq(4)));
}

TEST(InputScales, a_group_is_clipped_where_that_loses_less) {
  const Context context = Context::cpu();
  constexpr int64_t kColumns = 32;
  InputMoments inputs{.sums = context.zeros({kColumns, kColumns}, DType::f32), .rows = 1};
  for (int64_t i = 0; i < kColumns; ++i)
    inputs.sums.data<float>()[i * (kColumns + 1)] = i == 0 ? 1e-4f : 1.0f;  // the outlier hardly counts
  const Tensor weights = context.empty({2, kColumns}, DType::f32);
  for (int64_t i = 0; i < weights.numel(); ++i) weights.data<float>()[i] = std::sin(static_cast<float>(3 * i + 1));
  weights.data<float>()[0] = 1.9f;
  clip_groups(context, weights, inputs, {.grid = {.bits = 3}, .group_size = 16});
  EXPECT_LT(weights.data<float>()[0], 1.5f);
  EXPECT_THAT(std::vector<float>(weights.data<float>() + 1, weights.data<float>() + 16), Each(Le(1.0f)));
}

}  // namespace
}  // namespace nought::folds_test
