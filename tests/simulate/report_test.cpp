// What a simulation says follows from its step by arithmetic.
#include "nought/simulate/report.h"

#include "support/message_of.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/base/error.h"

namespace nought::report_test {
namespace {

RankedLayout layout() {
  RankedLayout layout;
  layout.run.model.name = "llama";
  layout.run.model.layers = 2, layout.run.model.hidden = 128, layout.run.model.heads = 1;
  layout.run.model.kv_heads = 1, layout.run.model.head_dim = 128, layout.run.model.ffn = 512;
  layout.run.model.vocab = 1000;
  layout.run.software = software_of("megatron-core");
  layout.run.sequence = 1000, layout.run.global_batch = 8, layout.run.dp = 8;
  layout.step.seconds = layout.step.products = 2;
  return layout;
}

TEST(Report, tokens_days_and_cost_follow_from_the_step) {
  const OrderedJson json = to_json(layout(), cluster_of("h100x8"), {.tokens = 4000.0 * 86400, .price = 2.5});
  EXPECT_DOUBLE_EQ(json["tokens_per_second"], 4000);
  EXPECT_DOUBLE_EQ(json["days"], 1);
  EXPECT_DOUBLE_EQ(json["cost"], 24 * 8 * 2.5);
  EXPECT_DOUBLE_EQ(json["mfu"], 500 * layout().run.model.flops_per_token(1000, true) / 989e12);
  EXPECT_GT(json["mfu_whole_attention"], json["mfu"]);
  EXPECT_THAT(to_text(layout(), cluster_of("h100x8"), {.tokens = 4000.0 * 86400}),
              testing::HasSubstr("345.6M tokens take 1.0 days"));
}

TEST(Report, a_number_of_tokens_has_a_unit) {
  EXPECT_EQ(parse_tokens("15T"), 15e12);
  EXPECT_EQ(parse_tokens("2e9"), 2e9);
  for (const char* wrong : {"15X", "", "-1", "T"})
    EXPECT_THAT(test::message_of<ConfigError>([&] { parse_tokens(wrong); }), testing::HasSubstr("--tokens"));
}

}  // namespace
}  // namespace nought::report_test
