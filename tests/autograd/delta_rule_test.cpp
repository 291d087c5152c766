// The gated delta rule, gates, and columns that heads have in turn: gradients by central differences.
#include "nought/autograd/delta_rule.h"

#include "support/gradient_check.h"

#include "nought/autograd/functions.h"
#include "nought/autograd/gates.h"

namespace nought::delta_rule_test {
namespace {

TEST(DeltaRuleFunction, has_the_gradients_of_its_inputs_and_parameters) {
  const DeltaShape shape{.key_heads = 1, .value_heads = 2, .key_dim = 2, .value_dim = 2};
  const Context context = Context::reference();
  Unit unit("u");
  const ParameterView in = unit.add("in", {shape.width(), 4}, Init::zeros()),
                      gates = unit.add("g", {4, 4}, Init::zeros()),
                      a_log = unit.add("a", {2}, Init::zeros(), ParameterRole::bias),
                      dt_bias = unit.add("d", {2}, Init::zeros(), ParameterRole::bias);
  test::GradientCheck(context, unit, test::random(context, {6, 4}, 1), [&](Tape& tape, const Var& x) {
    const Var qkv = linear(tape, x, in, {}, WeightLayout::out_in),
              ba = linear(tape, x, gates, {}, WeightLayout::out_in);
    return delta_rule(tape, qkv, ba, a_log, dt_bias, shape, {{0, 4}, {4, 2}});
  }).run();
}

TEST(GateFunction, has_the_gradients_of_both_sides) {
  for (const GateKind kind : {GateKind::sigmoid, GateKind::silu}) {
    const Context context = Context::reference();
    Unit unit("u");
    const ParameterView in = unit.add("in", {12, 4}, Init::zeros());
    test::GradientCheck(context, unit, test::random(context, {3, 4}, 1), [&](Tape& tape, const Var& x) {
      const Var both = linear(tape, x, in, {}, WeightLayout::out_in);  // two heads of [3 | 3]
      const Var left = pick_columns(tape, both, {{0, 2, 3, 6}}), right = pick_columns(tape, both, {{3, 2, 3, 6}});
      return with_rows_of(tape, gate(tape, with_rows_of(tape, left, 3), with_rows_of(tape, right, 3), kind), 6);
    }).run();
  }
}

TEST(PickColumns, puts_the_parts_side_by_side) {
  const Context context = Context::reference();
  Tape tape(context, /*recording=*/false);
  const Tensor x = test::random(context, {2, 7}, 1);
  const Var y = pick_columns(tape, Tape::constant(x), {{1, 2, 2, 3}, {0, 1, 1, 0}});
  const std::vector<double> from = x.to_vector<double>(), to = y.value.to_vector<double>();
  const std::vector<size_t> expected{1, 2, 4, 5, 0, 8, 9, 11, 12, 7};
  ASSERT_EQ(to.size(), expected.size());
  for (size_t i = 0; i < to.size(); ++i) EXPECT_EQ(to[i], from[expected[i]]);
}

}  // namespace
}  // namespace nought::delta_rule_test
