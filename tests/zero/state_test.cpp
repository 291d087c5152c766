#include "nought/zero/state.h"

#include "support/small_units.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nought::state_test {
namespace {

using testing::Each;

const Context& reference() {
  static const Context context = Context::reference();
  return context;
}

Tensor filled(const StateSource& source, StateKind kind, const Parameter& parameter, Interval interval,
              DType dtype = DType::f32) {
  const Tensor values = reference().empty({interval.size()}, dtype);
  source.fill(kind, parameter, interval, values);
  return values;
}

TEST(InitialState, values_do_not_depend_on_how_a_parameter_is_cut) {
  const InitialState source(7);
  for (const auto& unit : test::small_units())
    for (const Parameter& parameter : unit->parameters()) {
      const int64_t numel = parameter.range.size();
      const std::vector<float> whole = filled(source, StateKind::master, parameter, {0, numel}).to_vector<float>();
      for (const int64_t cut : {int64_t{0}, numel / 3, numel / 2, numel}) {
        std::vector<float> parts = filled(source, StateKind::master, parameter, {0, cut}).to_vector<float>();
        const std::vector<float> rest = filled(source, StateKind::master, parameter, {cut, numel}).to_vector<float>();
        parts.insert(parts.end(), rest.begin(), rest.end());
        EXPECT_EQ(parts, whole) << parameter.name << " cut at " << cut;
      }
    }
}

TEST(InitialState, fills_as_the_parameter_says_and_states_with_zeros) {
  const InitialState source(7);
  const auto units = test::small_units();
  const Parameter &norm = units[1]->parameters()[0], &weight = units[1]->parameters()[1],
                  &bias = units[1]->parameters()[2];
  EXPECT_THAT(filled(source, StateKind::master, norm, {0, 5}).to_vector<float>(), Each(1));
  EXPECT_THAT(filled(source, StateKind::master, bias, {0, 11}).to_vector<float>(), Each(0));
  const std::vector<float> normal = filled(source, StateKind::master, weight, {0, 63}).to_vector<float>();
  double squares = 0;
  for (const float value : normal) squares += value * value;
  EXPECT_NEAR(std::sqrt(squares / 63), weight.init.std, 0.15);
  for (const StateKind kind : {StateKind::exp_avg, StateKind::exp_avg_sq, StateKind::momentum_buffer, StateKind::sum})
    for (const Parameter* parameter : {&norm, &weight})
      EXPECT_THAT(filled(source, kind, *parameter, {0, 5}).to_vector<float>(), Each(0));
}

TEST(InitialState, logarithms_are_those_of_uniform_values_between_two_bounds) {
  const auto units = test::small_units();
  Parameter parameter = units[1]->parameters()[1];
  parameter.init = Init::log_uniform(0.5, 16);
  double sum = 0, squares = 0;
  const std::vector<float> logarithms =
      filled(InitialState(7), StateKind::master, parameter, {0, 10000}).to_vector<float>();
  for (const float logarithm : logarithms) {
    const double value = std::exp(logarithm);
    EXPECT_GT(value, 0.499);
    EXPECT_LE(value, 16.001);
    sum += value, squares += value * value;
  }
  const double mean = sum / 10000;
  EXPECT_NEAR(mean, 8.25, 0.2);  // four standard deviations of the mean
  EXPECT_NEAR(squares / 10000 - mean * mean, 15.5 * 15.5 / 12, 0.8);
}

TEST(InitialState, depends_on_seed_and_name) {
  const auto units = test::small_units();
  Parameter weight = units[1]->parameters()[1];
  const auto values = [&](uint64_t seed) {
    return filled(InitialState(seed), StateKind::master, weight, {0, 63}).to_vector<float>();
  };
  const std::vector<float> first = values(7);
  EXPECT_EQ(values(7), first);
  EXPECT_NE(values(8), first);
  weight.name = "another";
  EXPECT_NE(values(7), first);
}

TEST(InitialState, narrow_values_are_the_wide_ones_rounded) {
  const InitialState source(7);
  const auto units = test::small_units();
  const Parameter& weight = units[1]->parameters()[1];
  const std::vector<float> wide = filled(source, StateKind::master, weight, {0, 63}).to_vector<float>();
  const std::vector<float> narrow = filled(source, StateKind::master, weight, {0, 63}, DType::bf16).to_vector<float>();
  for (size_t i = 0; i < wide.size(); ++i) EXPECT_EQ(narrow[i], static_cast<float>(bf16_t(wide[i])));
}

}  // namespace
}  // namespace nought::state_test
