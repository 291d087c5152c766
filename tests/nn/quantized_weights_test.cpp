#include "nought/nn/quantized_weights.h"

#include "support/message_of.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/nn/layers.h"
#include "nought/nn/model.h"

namespace nought::quantized_weights_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

/// An embedding, a block of q and k as one product, a norm and a router, and a head whose rows are no whole blocks.
class Small final : public Model {
 public:
  Small() {
    add_unit("embedding").add("embed.weight", {5, 32}, Init::zeros(), ParameterRole::embedding);
    Unit& block = add_unit("block");
    Linear(block, {.in = 32, .out = {3, 2}, .names = {"block.q", "block.k"}});
    Norm(block, "block.norm", NormKind::rms, 32, 1e-6);
    block.add("block.router.weight", {4, 32}, Init::zeros(), ParameterRole::router);
    add_unit("head").add("head.weight", {5, 3}, Init::zeros(), ParameterRole::head);
  }
  Var loss(Tape&, const Batch&, double) override { return {}; }
};

std::vector<std::string> quantized_with(const std::vector<std::string>& patterns) {
  Small model;
  keep_quantized(patterns, model);
  std::vector<std::string> names;
  for (const auto& unit : model.units())
    for (const Parameter& parameter : unit->parameters())
      if (parameter.quantized) names.push_back(parameter.name);
  return names;
}

std::string refusal_of(const std::vector<std::string>& patterns) {
  return test::message_of<ConfigError>([&] { quantized_with(patterns); });
}

TEST(Coding, patterns_choose_matrices_and_tables_and_leave_the_rest) {
  EXPECT_THAT(quantized_with({}), UnorderedElementsAre());
  EXPECT_THAT(quantized_with({"embed"}), UnorderedElementsAre("embed.weight"));
  EXPECT_THAT(quantized_with({"^block"}), UnorderedElementsAre("block.q.weight", "block.k.weight"))
      << "neither the norm nor the router";
}

TEST(Coding, refuses_patterns_that_choose_nothing_and_names_what_is_near) {
  EXPECT_THAT(refusal_of({"emped"}), AllOf(HasSubstr("matches no parameter"), HasSubstr("embed.weight")));
  EXPECT_THAT(refusal_of({"norm"}), AllOf(HasSubstr("block.norm.weight"), HasSubstr("neither a matrix")));
  EXPECT_THAT(refusal_of({"("}), HasSubstr("not a regular expression"));
}

TEST(Coding, refuses_rows_that_are_no_whole_blocks_and_half_a_product) {
  EXPECT_THAT(refusal_of({"head"}), HasSubstr("head.weight [5, 3]"));
  EXPECT_THAT(refusal_of({"\\.q"}), HasSubstr("block.q.weight and block.k.weight"));
}

TEST(Coding, what_is_kept_as_codes_counts_as_frozen) {
  Small model;
  keep_quantized({"block", "embed"}, model);
  EXPECT_EQ(model.frozen_count(), 5 * 32 + 5 * 32);
}

}  // namespace
}  // namespace nought::quantized_weights_test
