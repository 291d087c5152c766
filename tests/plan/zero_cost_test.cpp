#include "nought/plan/zero_cost.h"

#include "support/tiny_llama.h"
#include <gtest/gtest.h>

#include "nought/base/text.h"

namespace nought::zero_cost_test {
namespace {

Layout on(int ranks, int stages, int zero_stage, int64_t micro_batches = 4) {
  return {.ranks = ranks,
          .zero_stage = zero_stage,
          .pipeline = {.ranks = stages},
          .seq_length = 16,
          .accumulation = micro_batches,
          .wire = Wire::threads};
}

TEST(ZeroCost, has_what_the_same_rank_sends_at_that_stage_and_at_stage_1) {
  const ModelConfig config = test::tiny_llama();
  const auto line = [&](int stage) { return describe_zero_cost(config, predict_at(config, on(4, 2, stage), 1)); };
  const auto sent = [&](int stage) {
    return format_bytes(predict_at(config, on(4, 2, stage), 1).traffic.total_bytes());
  };
  EXPECT_EQ(line(2),
            fmt::format("stage 2 reduces gradients in each of 4 micro-batches: rank 2 sends {} per step, at stage "
                        "1 it is {}",
                        sent(2), sent(1)));
  EXPECT_EQ(line(3),
            fmt::format("stage 3 gathers parameters and reduces gradients in each of 4 micro-batches: rank 2 sends "
                        "{} per step, at stage 1 it is {}",
                        sent(3), sent(1)));
  EXPECT_NE(sent(2), sent(1));
}

/// At stage 2 the reduction comes once more with each further micro-batch; at stage 1 nothing but the messages does.
TEST(ZeroCost, grows_with_the_micro_batches) {
  const ModelConfig config = test::tiny_llama();
  const auto sent = [&](int stage, int64_t micro_batches, Collective::Kind collective) {
    return predict_at(config, on(4, 2, stage, micro_batches), 0)
        .traffic.counts[static_cast<size_t>(collective)]
        .elements;
  };
  EXPECT_EQ(sent(2, 8, Collective::reduce_scatter), 8 * sent(2, 1, Collective::reduce_scatter));
  EXPECT_EQ(sent(1, 8, Collective::reduce_scatter), sent(1, 1, Collective::reduce_scatter));
}

TEST(ZeroCost, is_shown_where_a_pipeline_makes_it) {
  const ModelConfig config = test::tiny_llama();
  for (const Layout& layout : {on(4, 2, 0), on(4, 2, 1), on(4, 1, 2), on(2, 2, 3)})
    EXPECT_EQ(describe_zero_cost(config, predict(config, layout)), "") << layout.str();
}

}  // namespace
}  // namespace nought::zero_cost_test
