#include "nought/config/config_reference.h"

#include <fstream>
#include <iterator>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/config/ds_config.h"

namespace nought {
namespace {

using testing::HasSubstr;

TEST(ConfigReference, the_page_in_docs_is_what_the_program_prints) {
  std::ifstream file(NOUGHT_DOCS_DIR "/config.md");
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
  EXPECT_EQ(config_text("no such key"), "");
}

}  // namespace
}  // namespace nought
