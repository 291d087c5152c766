// What an optimizer from outside is given, and what it may keep. The bits of its updates: zero/custom_updates_test.cpp.
#include "nought/optim/custom_optimizer.h"

#include <functional>

#include "support/message_of.h"
#include "support/parameter_rules.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/optim/optimizer.h"

namespace nought::custom_optimizer_test {
namespace {

using testing::ElementsAre;

class Probe final : public CustomOptimizer {
 public:
  using Update = std::function<void(const UpdateNumbers&, const UpdatedElements&)>;
  explicit Probe(std::vector<StateKind> states, Update update = {})
      : states_(std::move(states)), update_(std::move(update)) {}
  std::string name() const override { return "probe"; }
  std::vector<StateKind> states() const override { return states_; }
  void update(const UpdateNumbers& numbers, const UpdatedElements& elements) const override {
    update_(numbers, elements);
  }

 private:
  std::vector<StateKind> states_;
  Update update_;
};

std::string refusal_of(std::vector<StateKind> states) {
  const CustomOptions options{std::make_shared<Probe>(std::move(states))};
  return test::message_of<Error>([&] { options.states(); });
}

TEST(CustomOptimizer, keeps_states_that_checkpoints_and_codes_know) {
  EXPECT_EQ(refusal_of({}), "");
  EXPECT_EQ(refusal_of({StateKind::sum, StateKind::exp_avg, StateKind::momentum_buffer, StateKind::exp_avg_sq}), "");
  EXPECT_EQ(refusal_of({StateKind::exp_avg, StateKind::master}),
            "optimizer probe: it keeps master, expected some of exp_avg, momentum_buffer, exp_avg_sq and sum");
  EXPECT_EQ(refusal_of({StateKind::sum, StateKind::sum}), "optimizer probe: it keeps sum twice");
  EXPECT_EQ(test::message_of<Error>([] { CustomOptions{}.states(); }), "CustomOptions: there is no optimizer");
}

TEST(CustomOptimizer, gets_scaled_gradients_its_states_in_order_and_the_numbers_of_the_update) {
  const Context context = Context::cpu();
  const auto tensor = [&](std::vector<float> values) {
    return context.upload<float>({static_cast<int64_t>(values.size())}, values);
  };
  const UpdateSpan span{.parameter = tensor({1, 2}),
                        .gradient = tensor({3, 4}),
                        .parameter_copy = context.empty({2}, DType::bf16),
                        .states = {tensor({5, 6}), tensor({7, 8})},
                        .lr = 0.25,
                        .weight_decay = 0.125,
                        .gradient_scale = 0.5,
                        .step = 9};
  const CustomOptions options{std::make_shared<Probe>(std::vector{StateKind::sum, StateKind::exp_avg},
                                                      [](const UpdateNumbers& numbers, const UpdatedElements& of) {
                                                        EXPECT_THAT(of.gradient, ElementsAre(1.5, 2));
                                                        EXPECT_THAT(of.states[1], ElementsAre(7, 8));
                                                        EXPECT_EQ(numbers.lr, 0.25);
                                                        EXPECT_EQ(numbers.weight_decay, 0.125);
                                                        EXPECT_EQ(numbers.step, 9);
                                                        of.states[0][0] = 10;
                                                        of.parameter[1] = 1 + 1.0F / 1024;
                                                      })};
  update_by(options, context, span);
  EXPECT_THAT(span.states[0].to_vector<float>(), ElementsAre(10, 6));
  EXPECT_THAT(span.parameter.to_vector<float>(), ElementsAre(1, 1 + 1.0F / 1024));
  EXPECT_THAT(span.parameter_copy.to_vector<float>(), ElementsAre(1, 1)) << "rounded to bf16";
}

TEST(CustomOptimizer, decays_and_has_groups_as_any_other) {
  Unit unit("block.0");
  unit.add("block.0.norm.weight", {8}, Init::ones(), ParameterRole::norm);
  unit.add("block.0.up.weight", {8, 8}, Init::normal(1));
  const OptimizerOptions options{.method = CustomOptions{std::make_shared<Probe>(std::vector{StateKind::sum})},
                                 .weight_decay = 0.1,
                                 .groups = {{"up", 3, {}}}};
  const std::vector<ParameterRule> rules = test::rules_for(options, unit);
  EXPECT_EQ(rules[0].weight_decay, 0);
  EXPECT_EQ(rules[1].weight_decay, 0.1);
  EXPECT_EQ(rules[1].lr_scale, 3);
  EXPECT_THAT(rules[1].states(), ElementsAre(StateKind::sum));
  EXPECT_FALSE(gives_direction(rules[1].method));
}

}  // namespace
}  // namespace nought::custom_optimizer_test
