// nought info of files of tensors that are no model, and of checkpoints of other programs.
#include <filesystem>
#include <utility>

#include "support/golden_root.h"
#include "support/known_paths.h"
#include "support/run_program.h"
#include "support/size.h"
#include "support/temp_folder.h"
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace nought::tensor_info_test {
namespace {

NOUGHT_FILE_SIZE(small);

namespace fs = std::filesystem;
using test::Ended;
using testing::AllOf;
using testing::HasSubstr;

const std::string kForeign = test::golden_root() + "/foreign/";

Ended info(const std::string& arguments) {
  return test::run_program(test::known_path("nought") + " info " + arguments);
}

TEST(TensorInfo, a_checkpoint_without_a_config_lists_its_tensors_and_states) {
  const test::TempFolder folder;
  // The tied head of dcp is a tensor of the model, and none of the optimizer.
  for (const auto& [name, trained] : {std::pair{"zero2", 12}, std::pair{"dcp", 11}}) {
    fs::copy(kForeign + name, folder / name, fs::copy_options::recursive);
    fs::remove(folder / name / "config.json");
    const Ended told = info((folder / name).string());
    ASSERT_EQ(told.exit_code, 0) << told.err;
    EXPECT_THAT(told.out,
                AllOf(HasSubstr("tensors of "), HasSubstr(fmt::format("exp_avg of {} tensors in f32", trained)),
                      HasSubstr("model.layers.0.mlp.up_proj.weight"), HasSubstr("[12, 8]"), HasSubstr("step")));
  }
  const nlohmann::json json = nlohmann::json::parse(info("--json " + (folder / "zero2").string()).out);
  EXPECT_EQ(json.at("written_by"), "DeepSpeed 0.19.8, ZeRO stage 2 on 2 ranks");
  EXPECT_EQ(json.at("step"), 2);
  EXPECT_EQ(json.at("optimizer_states").at(1).at("state"), "exp_avg_sq");
}

TEST(TensorInfo, a_file_lists_its_tensors) {
  const Ended weights = info(kForeign + "zero2/expected.safetensors");
  EXPECT_THAT(weights.out,
              AllOf(HasSubstr("model.norm.weight"), HasSubstr("f32"), HasSubstr("[8]"), HasSubstr("32 B")));
  const Ended states = info(kForeign + "zero2/global_step2/bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt");
  EXPECT_THAT(states.out,
              AllOf(HasSubstr("torch.save"), HasSubstr("base_optimizer_state.state.0.exp_avg"), HasSubstr("[292]")));
  const Ended part = info(kForeign + "dcp/__0_0.distcp");
  EXPECT_EQ(part.exit_code, 1);
  EXPECT_THAT(part.err, HasSubstr("which .metadata beside it describes: name the folder"));
  EXPECT_EQ(part.error_lines(), 1);
}

TEST(TensorInfo, a_checkpoint_with_a_config_is_a_model_that_tells_its_run) {
  const Ended told = info(kForeign + "zero3");
  ASSERT_EQ(told.exit_code, 0) << told.err;
  EXPECT_THAT(told.out, AllOf(HasSubstr("llama"), HasSubstr("by DeepSpeed 0.19.8, ZeRO stage 3 on 3 ranks"),
                              HasSubstr("exp_avg_sq of 11 tensors in f32")));
}

}  // namespace
}  // namespace nought::tensor_info_test
