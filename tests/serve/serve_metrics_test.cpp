// What /metrics says of guesses.
#include "nought/serve/serve_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nought::serve_metrics_test {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(ServeMetrics, accepted_guesses_are_counted_by_their_place_in_a_draft) {
  InferenceEngine::Counts counts;
  EXPECT_THAT(ServeMetrics().page("m", counts, 1), Not(HasSubstr("per_pos")));
  counts.speculated.accepted_at = {5, 2};
  EXPECT_THAT(ServeMetrics().page("m", counts, 1),
              HasSubstr("# TYPE nought:spec_decode_num_accepted_tokens_per_pos_total counter\n"
                        "nought:spec_decode_num_accepted_tokens_per_pos_total{model_name=\"m\",position=\"0\"} 5\n"
                        "nought:spec_decode_num_accepted_tokens_per_pos_total{model_name=\"m\",position=\"1\"} 2\n"));
}

}  // namespace
}  // namespace nought::serve_metrics_test
