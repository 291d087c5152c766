// Updates wait for the backward pass where there is no room for what it takes to overlap them with it.
#include "nought/plan/fitting_update.h"

#include "support/temp_folder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "nought/comm/thread.h"
#include "nought/plan/predict.h"
#include "nought/train/validate_run.h"

namespace nought::fitting_update_test {
namespace {

using testing::HasSubstr;

struct FittingUpdate : testing::Test {
  FittingUpdate() {
    plan.model_config = {{"model_type", "llama"},    {"vocab_size", 512},
                         {"hidden_size", 64},        {"intermediate_size", 128},
                         {"num_hidden_layers", 2},   {"num_attention_heads", 4},
                         {"num_key_value_heads", 4}, {"max_position_embeddings", 64}};
    plan.layout.seq_length = 64;
    plan.layout.sharding.dtype = plan.layout.sharding.gradient_dtype = DType::bf16;
    plan.layout.sharding.offload_optimizer = {
        .tier = {Pool::file, folder.path().string()}, .early = true, .undo = true};
    plan.resolved.push_back({"update_beside_backward", "true", "a guess"});
    plan.update_fits_room = true;
  }
  Prediction predicted() const { return predict(model_config_of(plan), layout_of(plan)); }
  std::string reason(const RunPlan& of) const { return of.resolved.back().reason; }

  test::TempFolder folder;
  RunPlan plan;
};

TEST_F(FittingUpdate, takes_room_on_the_disk) {
  int64_t files = 0;
  for (const int64_t bytes : predicted().memory.file) files += bytes;
  EXPECT_TRUE(with_fitting_update(plan, files).layout.sharding.offload_optimizer.undo);
  const RunPlan waits = with_fitting_update(plan, files - 1);
  EXPECT_FALSE(waits.layout.sharding.offload_optimizer.early);
  EXPECT_FALSE(waits.layout.sharding.offload_optimizer.undo);
  EXPECT_EQ(waits.resolved.back().value, "false");
  EXPECT_THAT(reason(waits), HasSubstr("left"));
  plan.update_fits_room = false;  // the user says so
  EXPECT_TRUE(with_fitting_update(plan, files - 1).layout.sharding.offload_optimizer.undo);
}

TEST_F(FittingUpdate, takes_room_in_memory) {
  plan.device_memory = predicted().memory.peak_total;
  EXPECT_TRUE(with_fitting_update(plan).layout.sharding.offload_optimizer.undo);
  --plan.device_memory;
  EXPECT_THAT(reason(with_fitting_update(plan)), HasSubstr("more than fits"));
}

TEST_F(FittingUpdate, is_off_on_all_ranks_if_one_lacks_room) {
  int64_t files = 0;
  for (const int64_t bytes : predicted().memory.file) files += bytes;
  for (const int64_t lacking : {-1, 0, 1}) {
    run_ranks(2, [&](Communicator& ranks, const Context& context) {
      const bool lacks = ranks.rank() == lacking;
      const RunPlan chosen = with_common_fitting_update(plan, ranks, context, lacks ? files - 1 : files);
      EXPECT_EQ(chosen.layout.sharding.offload_optimizer.early, lacking < 0);
      EXPECT_EQ(chosen.layout.sharding.offload_optimizer.undo, lacking < 0);
      EXPECT_THAT(reason(chosen), HasSubstr(lacking < 0 ? "a guess" : lacks ? "left" : "another rank"));
    });
  }
}

}  // namespace
}  // namespace nought::fitting_update_test
