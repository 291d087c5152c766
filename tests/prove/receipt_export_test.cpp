// Adapters that a run with a receipt exported are those of its checkpoint, and changed ones are found.
#include "nought/weights/receipt_export.h"

#include <algorithm>
#include <filesystem>
#include <string>

#include "support/saved_model.h"
#include "support/size.h"
#include "support/temp_folder.h"
#include "support/trainer_runs.h"
#include "support/training_case.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/tensor/random.h"
#include "nought/weights/adapter_files.h"

namespace nought::receipt_export_test {
namespace {

namespace fs = std::filesystem;
using test::TempFolder;
using testing::HasSubstr;

/// A run of 4 steps that trains an adapter, with a receipt and a checkpoint after every second one.
class AdapterExport : public testing::Test {
 protected:
  AdapterExport() {
    folder.write("base/config.json", test::tiny_llama().to_hf_json(DType::f32).dump());
    test::write_weights(folder / "base", test::tiny_llama(),
                        [](int64_t i) { return static_cast<float>(0.1 * normal_at(1, static_cast<uint64_t>(i))); });
    plan = test::plan_on_lines(folder, 4, 5e-2);
    plan.model_config = {}, plan.model_dir = (folder / "base").string();
    plan.adapter = AdapterConfig{.r = 2, .alpha = 4, .targets = {.pattern = "all-linear"}};
    plan.adapter_place = "RUN.json: adapter";
    plan.save_steps = 2;
    plan.receipt_every = 1;
  }
  ExportComparison after_the_run() const {
    test::run_plan(plan);
    return compared();
  }
  ExportComparison compared() const { return compare_export(Receipt(plan.output_dir), plan.output_dir); }
  /// Changes the lowest bits of the last value in the adapter's file.
  void change_a_value() const {
    const std::string name = "out/adapter_model.safetensors";
    std::string bytes = test::read_bytes(folder / name);
    bytes.at(bytes.size() - 4) = static_cast<char>(bytes.at(bytes.size() - 4) ^ 1);
    folder.write(name, bytes);
  }

  const TempFolder folder;
  RunPlan plan;
};

NOUGHT_SIZE(medium);
TEST_F(AdapterExport, is_compared_with_the_checkpoint_of_its_step) {
  EXPECT_TRUE(after_the_run().compared);
  EXPECT_EQ(compared().note, "");
  change_a_value();
  EXPECT_TRUE(compared().compared);
  EXPECT_EQ(compared().note, "they are not those of step 4");
}

NOUGHT_SIZE(medium);
TEST_F(AdapterExport, is_compared_as_it_is_rounded_with_all_that_is_trained) {
  plan.layout.sharding.dtype = plan.layout.sharding.gradient_dtype = DType::bf16;
  plan.adapter->dora = true, plan.adapter->modules_to_save = {"lm_head"}, plan.adapter->bias = AdapterBias::none;
  const ExportComparison whole = after_the_run();
  EXPECT_TRUE(whole.compared);
  EXPECT_EQ(whole.note, "");
  change_a_value();
  EXPECT_EQ(compared().note, "they are not those of step 4");
}

NOUGHT_SIZE(medium);
TEST_F(AdapterExport, without_its_checkpoint_or_its_base_is_not_compared) {
  test::run_plan(plan);
  fs::rename(folder / "base", folder / "moved");
  EXPECT_FALSE(compared().compared);
  EXPECT_THAT(compared().note, HasSubstr("the model that it was trained on is not there"));
  fs::remove_all(folder / "out/checkpoint-4");
  EXPECT_THAT(compared().note, HasSubstr("no checkpoint of step 4"));
}

NOUGHT_SIZE(medium);
TEST_F(AdapterExport, of_a_start_that_is_taken_from_the_model_is_not_compared) {
  plan.adapter->start = AdapterStart::pissa;
  const ExportComparison difference = after_the_run();
  EXPECT_FALSE(difference.compared);
  EXPECT_THAT(difference.note, HasSubstr("init_lora_weights"));
}

}  // namespace
}  // namespace nought::receipt_export_test
