// The functions that take a weight give the same whatever the operand is: leased or resident, codes or their values.
#include "nought/autograd/weight_view.h"

#include <numeric>

#include "support/gradient_check.h"
#include "support/message_of.h"
#include <gmock/gmock.h>

#include "nought/autograd/functions.h"
#include "nought/autograd/token_dispatch.h"

namespace nought::weight_view_test {
namespace {

using namespace test;
using ::testing::AllOf;
using ::testing::HasSubstr;

bool all_quantized(const Parameter& parameter) { return parameter.name.front() == 'w'; }

/// The values that codes stand for.
Tensor values_of(const Context& context, const Weight& weight, DType dtype = DType::f64) {
  if (!weight.is_quantized()) return weight.values;
  const Tensor x = context.empty(weight.shape(), dtype);
  context.run(DequantizeBlocks{.weight = weight, .x = x});
  return x;
}

/// One parameter "w" of a Unit that keeps it as codes, and a store with its values.
struct Coded {
  Coded(const Context& context, Shape shape, DType dtype = DType::f64)
      : view(unit.add("w", shape, Init::zeros())),
        store((unit.choose_quantized(all_quantized), context), unit, dtype) {}
  Unit unit{"block"};
  ParameterView view;
  LocalStore store;
};

using Function = std::function<Var(Tape&, const Var&, const WeightView&)>;

/// y and dx of a function of x and a weight.
std::pair<Tensor, Tensor> run_both_ways(const Context& context, const Tensor& x, const WeightView& weight,
                                        const Function& f) {
  Tape tape(context);
  Tensor own = context.empty(x.shape(), x.dtype());
  context.copy(x, own);
  const Var in = tape.input(own), y = f(tape, in, weight);
  const Tensor value = y.value;
  tape.backward(y, random(context, value.shape(), 5));
  return {value, tape.gradient(in)};
}

/// Leased codes, resident codes and a resident dense weight of the same values: one result.
void expect_one_meaning(Shape shape, const Tensor& x, const Context& context, const Function& f) {
  Coded quantized(context, shape);
  const Weight codes = quantized.view.weight();
  const auto [y, dx] = run_both_ways(context, x, quantized.view, f);
  for (const Weight& weight : {codes, Weight(values_of(context, codes))}) {
    const auto [other, other_dx] = run_both_ways(context, x, WeightView("w", weight, DType::f64), f);
    EXPECT_EQ(y.to_vector<double>(), other.to_vector<double>()) << weight.str();
    EXPECT_EQ(dx.to_vector<double>(), other_dx.to_vector<double>()) << weight.str();
  }
  // dx is the gradient of y: central differences of sum(y * seed).
  const Tensor seed = random(context, y.shape(), 5);
  const auto loss = [&] {
    Tape tape(context, false);
    Tensor own = context.empty(x.shape(), x.dtype());
    context.copy(x, own);
    const Tensor value = f(tape, Tape::constant(own), quantized.view).value;
    return std::inner_product(value.data<double>(), value.data<double>() + value.numel(), seed.data<double>(), 0.0);
  };
  const std::vector<double> numeric = numeric_gradient(x, loss), gradient = dx.to_vector<double>();
  for (size_t i = 0; i < numeric.size(); ++i) ASSERT_NEAR(gradient[i], numeric[i], 1e-6) << i;
}

TEST(WeightView, a_linear_layer_means_the_values_of_its_codes) {
  const Context context = Context::reference();
  const Tensor x = random(context, {3, 64}, 1);
  expect_one_meaning({32, 64}, x, context, [](Tape& tape, const Var& in, const WeightView& weight) {
    return linear(tape, in, weight, {}, WeightLayout::out_in);
  });
  expect_one_meaning({64, 32}, x, context, [](Tape& tape, const Var& in, const WeightView& weight) {
    return linear(tape, in, weight, {}, WeightLayout::in_out);
  });
}

TEST(WeightView, a_table_and_a_head_mean_the_values_of_their_codes) {
  const Context context = Context::reference();
  const Tensor ids = integers(context, {4, 0, 6}), x = random(context, {3, 32}, 1);
  expect_one_meaning({7, 32}, x, context, [&](Tape& tape, const Var& in, const WeightView& table) {
    return add_embedding(tape, add(tape, in, embedding(tape, ids, table)), ids, table);
  });
  for (const double softcap : {0.0, 2.0}) {
    Coded quantized(context, {7, 32});
    const auto both = [&](const WeightView& weight) {
      Tape tape(context);
      const Var in = tape.input(x), loss = cross_entropy_head(tape, in, weight, ids, 3, softcap);
      const double value = loss.value.item();
      tape.backward(loss);
      return std::pair{value, tape.gradient(in).to_vector<double>()};
    };
    EXPECT_EQ(both(quantized.view), both(WeightView("w", values_of(context, quantized.view.weight()), DType::f64)));
  }
}

TEST(WeightView, experts_mean_the_values_of_their_codes) {
  const Context context = Context::reference();
  constexpr int64_t kHidden = 32, kWidth = 32, kExperts = 4, kTokens = 6;
  for (const bool out_in : {true, false}) {
    Unit unit("block");
    ExpertWeights experts{.out_in = out_in};
    const auto shape = [&](int64_t out, int64_t in) {
      return out_in ? Shape{kExperts, out, in} : Shape{kExperts, in, out};
    };
    const ParameterView gate_up = unit.add("w gate_up", shape(2 * kWidth, kHidden), Init::zeros()),
                        down = unit.add("w down", shape(kHidden, kWidth), Init::zeros());
    unit.choose_quantized(all_quantized);
    const LocalStore store(context, unit, DType::f64);
    const Tensor chosen = integers(context, {0, 1, 2, 3, 1, 0, 3, 2, 0, 2, 1, 3}).reshape({kTokens, 2});
    const ExpertRows rows = group_by_expert(context, chosen, kExperts, 0);
    const Tensor x = random(context, {kTokens, kHidden}, 1), weights = random(context, {kTokens, 2}, 2);
    const auto both = [&](const WeightView& up, const WeightView& out) {
      experts.gate_up = up, experts.down = out;
      Tape tape(context);
      const Var in = tape.input(x), by = tape.input(weights);
      const Var y = run_experts(tape, in, by, rows, experts, {});
      const std::vector<double> value = y.value.to_vector<double>();
      tape.backward(y, random(context, {kTokens, kHidden}, 3));
      return std::tuple{value, tape.gradient(in).to_vector<double>(), tape.gradient(by).to_vector<double>()};
    };
    const auto expected = both(WeightView("up", values_of(context, gate_up.weight()), DType::f64),
                               WeightView("down", values_of(context, down.weight()), DType::f64));
    EXPECT_EQ(both(gate_up, down), expected);
    EXPECT_EQ(both(WeightView("up", gate_up.weight(), DType::f64), WeightView("down", down.weight(), DType::f64)),
              expected);
  }
}

TEST(WeightView, what_is_looked_up_in_codes_has_the_dtype_that_they_stand_for) {
  const Context context = Context::reference();
  const Tensor ids = integers(context, {4, 0});
  Coded quantized(context, {7, 32}, DType::bf16);
  Tape tape(context, false);
  EXPECT_EQ(quantized.view.weight().values.dtype(), DType::i8);
  EXPECT_EQ(embedding(tape, ids, quantized.view).value.dtype(), DType::bf16);
  EXPECT_EQ(embedding(tape, ids, WeightView("w", quantized.view.weight(), DType::f16)).value.dtype(), DType::f16);
}

TEST(WeightView, codes_record_nothing_for_themselves_and_refuse_to_be_trained_by_name) {
  const Context context = Context::reference();
  Coded quantized(context, {32, 64});
  const WeightView leased = quantized.view, resident("the head", quantized.view.weight(), DType::f64);
  Tape tape(context);
  EXPECT_FALSE(
      linear(tape, Tape::constant(random(context, {3, 64}, 1)), leased, {}, WeightLayout::out_in).requires_grad());
  EXPECT_FALSE(leased.trained() || resident.trained() || WeightView().trained() || WeightView().defined());
  EXPECT_THAT(message_of<Error>([&] { leased.gradient(quantized.view.unit().store()); }),
              AllOf(HasSubstr("w is kept quantized"), HasSubstr("no gradient")));
  EXPECT_THAT(message_of<Error>([&] { resident.gradient(quantized.view.unit().store()); }),
              HasSubstr("the head has no gradient"));
  EXPECT_THAT(message_of<Error>([&] { quantized.view.value(); }), HasSubstr("w is kept quantized"));
}

TEST(WeightView, a_dense_parameter_is_what_it_was) {
  const Context context = Context::reference();
  Unit unit("block");
  const ParameterView view = unit.add("w", {3, 5}, Init::zeros());
  LocalStore store(context, unit, DType::f64);
  const WeightView weight = view;
  EXPECT_TRUE(weight.trained());
  EXPECT_EQ(weight.dtype(), DType::f64);
  EXPECT_EQ(weight.value().values.raw(), view.value().raw());
  EXPECT_EQ(weight.gradient(store).into.raw(), view.gradient(store).into.raw());
}

TEST(WeightView, codes_are_not_rounded_to_fp8_as_well) {
  const Context context = Context::reference();
  Coded quantized(context, {32, 64}, DType::f32);
  Fp8Layer fp8{std::make_shared<Fp8Recipe>(Fp8Options{.scaling = Fp8Scaling::current})};
  fp8.index = fp8.recipe->add_layer();
  Tape tape(context, false);
  const Var x = Tape::constant(context.zeros({3, 64}, DType::f32));
  EXPECT_THROW(linear(tape, x, quantized.view, {}, WeightLayout::out_in, fp8), ConfigError);
}

// --- Units that keep parameters as codes ---

TEST(QuantizedUnit, codes_and_scales_lie_in_segments_of_their_own) {
  Unit unit("block");
  unit.add("norm", {5}, Init::ones(), ParameterRole::norm);
  const ParameterView a = unit.add("w a", {3, 32}, Init::zeros()), b = unit.add("w b", {2, 64}, Init::zeros());
  unit.add("half", {7}, Init::zeros(), {.trainable = false, .dtype = DType::f16});
  unit.choose_quantized(all_quantized);
  ASSERT_EQ(unit.segments().size(), 4u);
  const Segment &codes = unit.segments()[1], &scales = unit.segments()[2];
  EXPECT_EQ(codes.content, SegmentContent::codes);
  EXPECT_EQ(codes.dtype, DType::i8);
  EXPECT_EQ(codes.size, 3 * 32 + 2 * 64);
  EXPECT_EQ(codes.scales, 2u);
  EXPECT_EQ(scales.content, SegmentContent::scales);
  EXPECT_EQ(scales.dtype, DType::f16);
  EXPECT_EQ(scales.size, codes.size / 32);
  EXPECT_FALSE(codes.trainable || scales.trainable);
  EXPECT_TRUE(scales.parameters.empty());
  EXPECT_EQ(unit.parameters()[3].segment, 3u) << "f16 that is no scale";
  EXPECT_EQ(unit.numel(), 5 + 3 * 32 + 2 * 64 + 7) << "scales are no parameters";
  const Context context = Context::reference();
  const LocalStore store(context, unit, DType::f32);
  EXPECT_EQ(a.weight().scales.shape(), (Shape{3, 1}));
  EXPECT_EQ(b.weight().scales.shape(), (Shape{2, 2}));
  EXPECT_EQ(b.weight().scales.raw(), store.flat_values(0, 2).flat(3, 4).raw());
  EXPECT_THROW(unit.choose_quantized(all_quantized), Error) << "it is in use";
}

TEST(QuantizedUnit, what_is_kept_as_codes_is_not_trained_and_choosing_again_starts_anew) {
  Unit unit("block");
  unit.add("w", {2, 32}, Init::zeros());
  unit.choose_quantized(all_quantized);
  unit.choose_trained([](const Parameter&) { return true; });
  EXPECT_FALSE(unit.parameters()[0].trainable || unit.trained());
  unit.choose_quantized([](const Parameter&) { return false; });
  ASSERT_EQ(unit.segments().size(), 1u);
  EXPECT_EQ(unit.segments()[0].content, SegmentContent::values);
}

TEST(QuantizedUnit, refuses_by_name_what_cannot_be_codes) {
  const auto refusal = [](ParameterRole role, Shape shape) {
    return message_of<ConfigError>([&] {
      Unit unit("block");
      unit.add("w", shape, Init::zeros(), role);
      unit.choose_quantized(all_quantized);
    });
  };
  using Role = ParameterRole;
  for (const Role role : {Role::norm, Role::bias, Role::sink, Role::router, Role::choice_bias}) {
    EXPECT_FALSE(can_be_quantized(role));
    EXPECT_THAT(refusal(role, {2, 32}), HasSubstr("w cannot be kept quantized to 8 bits"));
  }
  EXPECT_THAT(refusal(Role::matrix, {2, 40}), AllOf(HasSubstr("w [2, 40]"), HasSubstr("whole blocks of 32")));
  EXPECT_THAT(refusal(Role::matrix, {64}), HasSubstr("w [64]"));
  Unit unit("block");
  const ParameterView q = unit.add("w q", {4, 32}, Init::zeros()), k = unit.add("k", {2, 32}, Init::zeros());
  unit.join(q, k, {6, 32});
  EXPECT_THAT(message_of<ConfigError>([&] { unit.choose_quantized(all_quantized); }),
              AllOf(HasSubstr("w q and k"), HasSubstr("both as codes or neither")));
}

TEST(QuantizedUnit, joined_parameters_are_one_weight) {
  const Context context = Context::reference();
  Unit unit("block");
  const ParameterView q = unit.add("w q", {4, 32}, Init::zeros()), k = unit.add("w k", {2, 32}, Init::zeros());
  const ParameterView both = unit.join(q, k, {6, 32});
  unit.choose_quantized(all_quantized);
  const LocalStore store(context, unit, DType::f32);
  const Weight weight = both.weight();
  EXPECT_EQ(weight.scales.shape(), (Shape{6, 1}));
  EXPECT_EQ(weight.slice(4, 6).values.raw(), k.weight().values.raw());
  EXPECT_EQ(weight.slice(4, 6).scales.raw(), k.weight().scales.raw());
}

}  // namespace
}  // namespace nought::weight_view_test
