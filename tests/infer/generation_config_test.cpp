#include "nought/infer/generation_config.h"

#include "support/message_of.h"
#include "support/temp_folder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/base/error.h"

namespace nought {
namespace generation_config_test {
namespace {

using test::message_of;
using test::TempFolder;
using testing::HasSubstr;

GenerationConfig read(const std::string& json) {
  const TempFolder folder;
  folder.write("generation_config.json", json);
  return read_generation_config(folder.path());
}

TEST(GenerationConfig, has_what_a_model_says_of_sampling_and_no_more) {
  EXPECT_TRUE(read_generation_config(TempFolder().path()).empty());
  EXPECT_TRUE(read(R"({"eos_token_id": [1, 2], "temperature": null})").empty());
  const GenerationConfig config =
      read(R"({"do_sample": true, "temperature": 0.6, "top_k": 20, "top_p": 0.95, "repetition_penalty": 1.05})");
  EXPECT_EQ(config.temperature, 0.6);
  EXPECT_EQ(config.top_k, 20);
  EXPECT_EQ(config.top_p, 0.95);
  EXPECT_EQ(config.min_p, std::nullopt);
  EXPECT_EQ(config.repetition_penalty, 1.05);
}

TEST(GenerationConfig, no_sampling_is_a_temperature_of_0) {
  const GenerationConfig config = read(R"({"do_sample": false, "temperature": 0.6, "top_p": 0.9})");
  EXPECT_EQ(config.temperature, 0);
  EXPECT_EQ(config.top_p, std::nullopt);
}

TEST(GenerationConfig, nonsense_is_refused_with_the_file) {
  for (const char* wrong : {R"({"temperature": "hot"})", R"({"top_p": 7})", "[]"})
    EXPECT_THAT(message_of<ConfigError>([&] { read(wrong); }), HasSubstr("generation_config.json")) << wrong;
}

}  // namespace
}  // namespace generation_config_test
}  // namespace nought
