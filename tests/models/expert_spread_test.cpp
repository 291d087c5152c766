// Over how many ranks experts can be spread, and what is said of other numbers.
#include "nought/models/expert_spread.h"

#include "support/golden.h"
#include "support/message_of.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nought::expert_spread_test {
namespace {

using ::testing::HasSubstr;

TEST(ExpertSpread, ranks_hold_equally_many_experts_and_other_numbers_name_the_nearest) {
  ModelConfig config = ModelConfig::from_folder(test::golden_folder("open/mixtral"));
  config.experts->num_experts = 12;
  for (const int ranks : {1, 2, 3, 4, 6, 12}) EXPECT_NO_THROW(require_spreadable(config, ranks, 12));
  const auto message = [&](int64_t ranks, int64_t data) {
    return test::message_of<ConfigError>([&] { require_spreadable(config, ranks, data); });
  };
  EXPECT_THAT(message(8, 8), HasSubstr("ep_size = 8: 8 ranks cannot hold equally many of the 12 experts of a mixtral "
                                       "model; the nearest size that can, and that divides the 8 data-parallel ranks, "
                                       "is 4"));
  EXPECT_THAT(message(5, 30), HasSubstr("is 6"));
  EXPECT_THAT(message(24, 24), HasSubstr("is 12"));
}

TEST(ExpertSpread, a_dense_model_has_no_experts_to_hold) {
  const ModelConfig config = ModelConfig::from_folder(test::golden_folder("open/llama"));
  EXPECT_NO_THROW(require_spreadable(config, 1, 4));
  EXPECT_THAT(test::message_of<ConfigError>([&] { require_spreadable(config, 2, 4); }),
              HasSubstr("ep_size = 2: a llama model has no experts"));
}

}  // namespace
}  // namespace nought::expert_spread_test
