#include "nought/cli/init_from.h"

#include "support/golden.h"
#include "support/known_paths.h"
#include "support/run_program.h"
#include "support/temp_folder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/config/run_config.h"

namespace nought::init_from_test {
namespace {

using test::Ended;
using test::run_program;
using test::TempFolder;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(InitFrom, the_text_is_read_again_with_the_same_values) {
  TranslatedRun run;
  run.taken = {{"model", "a \"quoted\"\nmodel", "base_model, line 1"},
               {"training.lr_scheduler_kwargs.min_lr_rate", 0.5, "line 2"},
               {"training.output_dir", "o*/ // #", ""},
               {"deepspeed", {{"zero_optimization", {{"stage", 2}}}}, "line 3"}};
  run.missing = {"x.yml:9: a = b\n}: why"};
  ForeignSettings settings;
  settings.file = "x\n.yml";
  const std::string text = foreign_run_text(run, settings, "run.json");
  const RunConfig config = make_run_config(parse_json(text, "run.json"), "run.json");
  EXPECT_EQ(config.model, "a \"quoted\"\nmodel");
  EXPECT_EQ(config.training.output_dir.value, "o*/ // #");
  EXPECT_EQ(config.training.lr_scheduler_kwargs.min_lr_rate.value, 0.5);
  EXPECT_EQ(config.deepspeed["zero_optimization"]["stage"], 2);
  EXPECT_THAT(text, AllOf(HasSubstr("// base_model, line 1\n"), HasSubstr("// \"files\": [\"PATH\"]"),
                          HasSubstr("//   x.yml:9: a = b ")));
}

NOUGHT_SIZE(medium);
TEST(InitFrom, a_file_of_another_program_becomes_a_run_that_check_accepts) {
  const TempFolder folder;
  folder.write("chats.jsonl",
               R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})");
  folder.write("in/axolotl.yml",
               "base_model: nowhere\nadapter: lora\nlora_r: 4\nlora_target_linear: true\nsequence_len: 32\n"
               "micro_batch_size: 1\nlearning_rate: 0.001\nwandb_project: x\nearly_stopping_patience: 3\n");
  const std::string program = test::known_path("nought") + " ", from = (folder / "in/axolotl.yml").string();
  const std::string file = (folder / "new/run.json").string();
  const std::string init = program + "init --from " + from + " " + file + " --data " +
                           (folder / "chats.jsonl").string() + " --model " + test::golden_folder("open/llama");
  const Ended made = run_program(init);
  EXPECT_EQ(made.exit_code, 0) << made.err;
  EXPECT_THAT(made.out,
              AllOf(HasSubstr("axolotl.yml:9: early_stopping_patience = 3: runs end by max_steps"),
                    HasSubstr("axolotl.yml:8: wandb_project = x: metrics.jsonl"), HasSubstr("run.json --ranks 1")));
  EXPECT_THAT(run_program(init).err, HasSubstr("run.json: is there already: --force replaces it"));
  const Ended checked = run_program(program + "check " + file + " --set data.chat_template=chatml");
  EXPECT_THAT(checked.out + checked.err, AllOf(HasSubstr("0.001"), HasSubstr("lora")));
  EXPECT_THAT(run_program(program + "init dpoo " + file + " --from " + from).err, HasSubstr("did you mean \"dpo\"?"));
  EXPECT_THAT(run_program(program + "init --from " + from + ".no").err, HasSubstr("axolotl.yml.no"));
}

}  // namespace
}  // namespace nought::init_from_test
