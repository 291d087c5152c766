#include "nought/config/config_reference.h"

#include <fstream>
#include <iterator>
#include <set>

#include "support/golden_root.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/config/ds_config.h"
#include "nought/config/training_rules.h"

namespace nought::config_reference_test {
namespace {

using testing::HasSubstr;

TEST(ConfigReference, the_page_in_docs_is_what_the_program_prints) {
  std::ifstream file(test::docs_root() + "/config.md");
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  EXPECT_EQ(page, config_markdown()) << "run: nought config --markdown > docs/config.md";
}

TEST(ConfigReference, every_key_stands_there_once_and_says_what_it_does) {
  std::set<std::string> paths;
  for (const ConfigEntry& entry : config_reference()) {
    EXPECT_TRUE(paths.insert(entry.path).second) << entry.path;
    EXPECT_FALSE(entry.help.empty()) << entry.path;
  }
  for (const KeyRule& rule : ds_key_rules()) EXPECT_TRUE(paths.count("deepspeed." + std::string(rule.path)));
  EXPECT_TRUE(paths.count("training.parameter_groups[].pattern"));
}

TEST(ConfigReference, a_search_finds_names_and_meanings_whatever_the_case) {
  EXPECT_THAT(config_text("LEARNING_RATE"), HasSubstr("training.learning_rate\n"));
  EXPECT_THAT(config_text("offload_param.device"), HasSubstr("deepspeed.zero_optimization.offload_param.device\n"));
  EXPECT_THAT(config_text("report_to"), HasSubstr("training.report_to"));
  EXPECT_EQ(config_text("no such key"), "");
}

TEST(ConfigReference, a_search_shows_what_works_first_and_a_key_of_that_name_before_all) {
  EXPECT_THAT(config_text("stage"), testing::StartsWith("deepspeed.zero_optimization.stage\n"));
  EXPECT_THAT(config_text("warmup_steps"), testing::StartsWith("training.warmup_steps\n"));
  EXPECT_THAT(config_text("lr"), testing::StartsWith("training.learning_rate\n")) << "as other programs call it";
  // No entry that works follows one that is refused or idle.
  for (const char* word : {"train", "stage", "batch", "info", "dtype"}) {
    bool idle = false;
    const std::vector<std::string> lines = split(config_text(word), '\n');
    EXPECT_GT(lines.size(), 2u) << word;
    for (const std::string& line : lines) {
      if (!line.starts_with("    ")) continue;
      const bool works = line.find("(no effect") == std::string::npos && line.find("(refused") == std::string::npos;
      EXPECT_FALSE(idle && works) << word << ": " << line;
      idle = idle || !works;
    }
  }
}

TEST(ConfigReference, the_page_has_a_verdict_for_every_field_of_TrainingArguments) {
  const std::string page = config_markdown();
  for (const std::string_view name : training_arguments())
    EXPECT_THAT(page, HasSubstr(fmt::format("\n| `{}` |", name))) << name;
  EXPECT_THAT(page, HasSubstr("| `learning_rate` |  | implemented |"));
  EXPECT_THAT(page, HasSubstr("| `tf32` | `null` | *no effect*: CPUs have no TF32; on GPUs: "));
  EXPECT_THAT(page, HasSubstr("| `label_smoothing_factor` | `0` | **refused**: label smoothing is not available |"));
}

}  // namespace
}  // namespace nought::config_reference_test
