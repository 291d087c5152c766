#include "nought/text/step_chain.h"

#include "support/message_of.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace nought::step_chain_test {
namespace {

using test::message_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> steps_of(const nlohmann::json& json) {
  std::vector<std::string> types;
  for_each_step(JsonView(json, "tokenizer.json"), "steps",
                [&](const JsonView&, const std::string& type) { types.push_back(type); });
  return types;
}

nlohmann::json sequence(nlohmann::json steps) { return {{"type", "Sequence"}, {"steps", std::move(steps)}}; }

TEST(StepChain, steps_come_in_their_order_out_of_sequences) {
  const nlohmann::json a = {{"type", "A"}}, b = {{"type", "B"}};
  EXPECT_THAT(steps_of(a), ElementsAre("A"));
  EXPECT_THAT(steps_of(sequence(nlohmann::json::array({a, sequence(nlohmann::json::array({b, a})), b}))),
              ElementsAre("A", "B", "A", "B"));
  EXPECT_THAT(steps_of(nullptr), ElementsAre());
  EXPECT_THAT(message_of<ConfigError>([] { steps_of({{"type", "Sequence"}}); }), HasSubstr("steps: expected a list"));
}

TEST(StepChain, many_steps_and_deep_sequences_are_refused) {
  const nlohmann::json a = {{"type", "A"}};
  const nlohmann::json forty = sequence(nlohmann::json::array_t(40, a));
  EXPECT_EQ(steps_of(forty).size(), 40u);
  EXPECT_THAT(message_of<ConfigError>([&] {
                steps_of(sequence(nlohmann::json::array({forty, forty})));
              }),
              HasSubstr("more than 64 steps"));
  EXPECT_THAT(message_of<ConfigError>([&] { steps_of(sequence(nlohmann::json::array_t(65, a))); }),
              HasSubstr("tokenizer.json: steps: has 65 steps, at most 64 are taken"));
  nlohmann::json deep = a;
  for (int i = 0; i < 4; ++i) deep = sequence(nlohmann::json::array({deep}));
  EXPECT_THAT(steps_of(deep), ElementsAre("A"));
  EXPECT_THAT(message_of<ConfigError>([&] { steps_of(sequence(nlohmann::json::array({deep}))); }),
              HasSubstr("nest deeper than 4 levels"));
}

TEST(StepChain, replacements_are_short_texts) {
  const auto read = [](const nlohmann::json& json) { return replacement_text(JsonView(json, "x")); };
  EXPECT_EQ(read("\u2581"), "\u2581");
  EXPECT_EQ(read(std::string(64, 'a')).size(), 64u);
  EXPECT_THAT(message_of<ConfigError>([&] { read(std::string(65, 'a')); }), HasSubstr("at most 64"));
  EXPECT_THAT(message_of<ConfigError>([&] { read("\xff"); }), HasSubstr("UTF-8"));
}

TEST(StepChain, a_text_may_grow_sixteenfold_and_by_64_kib) {
  const GrowthLimit limit(1000);
  limit.check(16'000 + 65'536, "the normalizers");
  EXPECT_THAT(message_of<ConfigError>([&] { limit.check(16'001 + 65'536, "the normalizers"); }),
              HasSubstr("the normalizers of the tokenizer make 79.6 KiB of a text of 1000 B"));
}

}  // namespace
}  // namespace nought::step_chain_test
