#include "nought/cli/trainer_flags.h"

#include "support/message_of.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/base/error.h"
#include "nought/cli/commands.h"

namespace nought {
namespace trainer_flags_test {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> changed(const std::vector<std::string>& arguments) {
  CLI::App app("", "nought");
  Invocation invocation;
  add_commands(app, invocation);
  return with_trainer_flags(app, arguments);
}

TEST(TrainerFlags, stand_for_settings_of_the_run_with_dashes_or_underscores) {
  EXPECT_THAT(
      changed({"train", "run.json", "--max_steps", "3", "--learning-rate=5e-5"}),
      ElementsAre("train", "run.json", "--set", "training.max_steps=3", "--set", "training.learning_rate=5e-5"));
  EXPECT_THAT(changed({"check", "--per_device_train_batch_size", "2", "run.json"}),
              ElementsAre("check", "--set", "training.per_device_train_batch_size=2", "run.json"));
  EXPECT_THAT(
      changed({"plan", "x", "--model_name_or_path", "m", "--deepspeed", "ds.json", "--train_file", "a.txt"}),
      ElementsAre("plan", "x", "--set", "model=m", "--set", "deepspeed=ds.json", "--set", "data.files=[\"a.txt\"]"));
}

TEST(TrainerFlags, switches_need_no_value_and_take_pythons) {
  EXPECT_THAT(changed({"train", "--bf16", "run.json", "--gradient_checkpointing", "True", "--do_train"}),
              ElementsAre("train", "--set", "training.bf16=true", "run.json", "--set",
                          "training.gradient_checkpointing=true", "--set", "training.do_train=true"));
  EXPECT_THAT(test::message_of<ConfigError>([] {
                changed({"train", "run.json", "--max_steps"});
              }),
              HasSubstr("--max_steps needs a value: it stands for --set training.max_steps=VALUE"));
}

TEST(TrainerFlags, leave_what_a_command_has_itself_and_what_nobody_has) {
  for (const std::vector<std::string>& same :
       {std::vector<std::string>{"train", "run.json", "--ranks", "2", "--set", "training.seed=1", "--max_stps", "3"},
        {"generate", "m", "--seed", "3", "--max_steps", "3"},
        {"bench", "step", "W1", "--dtype", "f32"},
        {"--help"},
        {}})
    EXPECT_EQ(changed(same), same);
  CLI::App app("", "nought");
  Invocation invocation;
  add_commands(app, invocation);
  EXPECT_THAT(trainer_flag_names(*app.get_subcommand("train")), Contains("--max_steps"));
}

}  // namespace
}  // namespace trainer_flags_test
}  // namespace nought
