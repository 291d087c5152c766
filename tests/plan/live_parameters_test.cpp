// As much stays gathered as fits, what that takes and saves is predicted as it happens, and the reason is said.
#include "nought/plan/live_parameters.h"

#include "support/agreement.h"
#include "support/resolved.h"
#include "support/size.h"
#include <gmock/gmock.h>

#include "nought/zero/partition.h"

namespace nought::live_parameters_test {
namespace {

using test::expect_agreement;
using test::measure;
using test::model_of;
using testing::HasSubstr;

constexpr int64_t kAll = std::numeric_limits<int64_t>::max();

Layout layout_of_two(int64_t most, int64_t accumulation = 4) {
  return {.ranks = 2,
          .zero_stage = 3,
          .micro_batch = 1,
          .seq_length = 64,
          .accumulation = accumulation,
          .sharding = {.live = {.most = most}},
          .wire = Wire::threads};
}

/// Half of the Units of which something is gathered.
int64_t half_of(const std::vector<int64_t>& sizes) {
  int64_t sum = 0;
  for (size_t i = 0; i < sizes.size() / 2; ++i) sum += sizes[i];
  return sum;
}

NOUGHT_SIZE(medium);
TEST(LiveParameters, memory_and_traffic_are_predicted_as_they_are) {
  const std::vector<int64_t> sizes = predict(model_of("llama"), layout_of_two(0)).gathered_units;
  std::vector<Layout> layouts{layout_of_two(kAll, 1), layout_of_two(kAll, 2), layout_of_two(half_of(sizes), 5)};
  layouts[1].evaluation_rows = 2, layouts[1].sample_prompt = 8, layouts[1].sample_new_tokens = 4;
  layouts.push_back(layout_of_two(kAll, 3));
  layouts.back().recompute = Recompute::full, layouts.back().recompute.checkpoints = 2;
  layouts.back().sharding.live.reuse_distance = half_of(sizes);
  layouts.push_back(layout_of_two(kAll, 2));  // stages of a pipeline
  layouts.back().ranks = 4, layouts.back().pipeline.ranks = 2;
  layouts.push_back(layout_of_two(kAll, 2));  // codes, and second copies
  layouts.back().ranks = 4, layouts.back().host_ranks = layouts.back().secondary = 2;
  layouts.back().sharding.dtype = DType::bf16, layouts.back().sharding.codes.weight_bits = 8;
  for (const Layout& layout : layouts) {
    SCOPED_TRACE(fmt::format("{}, {} ranks, {} elements stay", layout.str(), layout.ranks, layout.sharding.live.most));
    const test::Measurement measured = measure(model_of("llama"), layout);
    expect_agreement(predict(model_of("llama"), layout), measured);
    if (layout.sample_prompt == 0) {  // which is no part of a step
      EXPECT_EQ(measured.late_allocations, 0);
    }
  }
}

TEST(LiveParameters, all_that_stay_are_sent_once_in_a_step) {
  const auto gathered = [](const Layout& layout) {
    return predict(model_of("llama"), layout).traffic[Collective::all_gather].elements;
  };
  int64_t psi = 0;
  for (const int64_t size : predict(model_of("llama"), layout_of_two(0)).gathered_units) psi += size;
  for (const int64_t accumulation : {1, 2, 8}) {
    EXPECT_EQ(gathered(layout_of_two(0, accumulation)), accumulation * psi) << "twice, a half of it by each rank";
    EXPECT_EQ(gathered(layout_of_two(kAll, accumulation)), psi / 2);
  }
}

RunPlan plan_with(const Layout& layout, int64_t budget) {
  RunPlan plan;
  plan.model_config = {{"model_type", "llama"},       {"vocab_size", 1024},
                       {"hidden_size", 128},          {"intermediate_size", 344},
                       {"num_hidden_layers", 3},      {"num_attention_heads", 4},
                       {"num_key_value_heads", 2},    {"max_position_embeddings", 128},
                       {"tie_word_embeddings", false}};
  plan.layout = layout;
  plan.device_memory = budget, plan.live_fits_memory = budget > 0;
  plan.resolved.push_back({"stage3_max_live_parameters", "auto", "default: as many Units as fit"});
  return plan;
}

NOUGHT_SIZE(medium);
TEST(LiveParameters, are_as_many_as_a_budget_holds) {
  const ModelConfig config = model_of("llama");
  const std::vector<int64_t> sizes = predict(config, layout_of_two(0)).gathered_units;
  ASSERT_EQ(sizes.size(), 5u);
  int64_t sum = 0;
  for (size_t units = 0; units <= sizes.size(); ++units) {
    if (units > 0) sum += sizes[units - 1];
    const int64_t budget = predict(config, layout_of_two(sum)).most().peak_total;
    const RunPlan plan = with_live_parameters(plan_with(layout_of_two(0), budget));
    EXPECT_EQ(plan.layout.sharding.live.most, sum) << units;
    const std::string reason = test::reason_of(plan, "stage3_max_live_parameters");
    EXPECT_THAT(reason, HasSubstr(units == 0 ? "none of 5 Units stays" : fmt::format("{} of 5 Units", units)));
    EXPECT_THAT(reason, HasSubstr("default: as much as fits "));
  }
  EXPECT_EQ(with_live_parameters(plan_with(layout_of_two(sizes[0]), kAll)).layout.sharding.live.most, sizes[0])
      << "and no more than a number says";
  EXPECT_EQ(with_live_parameters(plan_with(layout_of_two(0), 1 << 20)).layout.sharding.live.most, 0)
      << "another message says that the run does not fit";
}

TEST(LiveParameters, a_number_alone_is_explained) {
  const RunPlan plan = with_live_parameters(plan_with(layout_of_two(kAll), 0));
  EXPECT_EQ(plan.layout.sharding.live.most, kAll);
  EXPECT_THAT(test::reason_of(plan, "stage3_max_live_parameters"), HasSubstr("5 of 5 Units"));
  Layout alone = layout_of_two(kAll);
  alone.ranks = 1;
  EXPECT_THAT(test::reason_of(with_live_parameters(plan_with(alone, 0)), "stage3_max_live_parameters"),
              HasSubstr("one rank has all parameters"));
}

}  // namespace
}  // namespace nought::live_parameters_test
