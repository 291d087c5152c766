#include "nought/infer/text_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/base/error.h"

namespace nought::text_stream_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

std::string streamed(const std::vector<std::string>& stops, const std::string& text, std::vector<std::string>* parts) {
  const auto bytes = make_tokenizer("bytes");
  TextStream stream(*bytes, stops);
  std::string all;
  for (const char c : text) {
    parts->push_back(stream.push(static_cast<unsigned char>(c)));
    all += parts->back();
  }
  return all + stream.finish();
}

TEST(TextStream, gives_nothing_that_could_become_a_stop_string) {
  std::vector<std::string> parts;
  EXPECT_EQ(streamed({"END", "\n\n"}, "aENbENDc", &parts), "aENb");
  EXPECT_THAT(parts, ElementsAre("a", "", "", "ENb", "", "", "", ""));
  parts.clear();
  EXPECT_EQ(streamed({"END", "\n\n"}, "x\ny\n\nz", &parts), "x\ny");
  parts.clear();
  EXPECT_EQ(streamed({"aab"}, "aaab", &parts), "a") << "beginnings may overlap";
  parts.clear();
  EXPECT_EQ(streamed({"END"}, "so EN", &parts), "so EN") << "the end is no stop string";
  EXPECT_THAT([] { TextStream(*make_tokenizer("bytes"), {""}); }, ThrowsMessage<ConfigError>(HasSubstr("--stop")));
}

}  // namespace
}  // namespace nought::text_stream_test
