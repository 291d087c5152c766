// Rewards of answers by rules.
#include "nought/rewards/reward.h"

#include <cmath>

#include "support/message_of.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/rewards/reward_config.h"
#include "nought/rewards/reward_program.h"

namespace nought::reward_test {
namespace {

using test::message_of;
using testing::HasSubstr;

double score(const RewardConfig& config, std::string_view text, const Json& columns = Json::object(),
             const std::vector<int32_t>& ids = {}) {
  const WrittenAnswer answer{columns, text, ids};
  return make_reward(config, 10)->of(std::span(&answer, 1)).at(0);
}

RewardConfig exact(RewardExtract extract) {
  RewardConfig config;
  config.type = RewardType::exact_match;
  config.extract.value = extract;
  return config;
}

TEST(Reward, finds_the_answer_in_what_was_written) {
  EXPECT_EQ(extracted(" 12 \n", RewardExtract::whole, ""), "12");
  EXPECT_EQ(extracted("so 3 + 4 = 7.", RewardExtract::number, ""), "7");
  EXPECT_EQ(extracted("it costs $1,234.50 now", RewardExtract::number, ""), "1,234.50");
  EXPECT_EQ(extracted("5 - -3", RewardExtract::number, ""), "-3");
  EXPECT_EQ(extracted("10-3", RewardExtract::number, ""), "3") << "a difference is no negative number";
  EXPECT_EQ(extracted("none", RewardExtract::number, ""), "");
  EXPECT_EQ(extracted("\\boxed{1} then \\boxed{\\frac{1}{2}}.", RewardExtract::boxed, ""), "\\frac{1}{2}");
  EXPECT_EQ(extracted("\\boxed{1", RewardExtract::boxed, ""), "");
  EXPECT_EQ(extracted("way\n#### 42 \nmore", RewardExtract::marker, "####"), "42");
  EXPECT_TRUE(same_answer("1,000", "1000.0"));
  EXPECT_TRUE(same_answer(" b ", "b"));
  EXPECT_FALSE(same_answer("", "0"));
  EXPECT_FALSE(same_answer("1e", "1"));
}

TEST(Reward, compares_with_a_column) {
  const Json gsm{{"answer", "3 and 4 make 7\n#### 7"}};
  EXPECT_EQ(score(exact(RewardExtract::marker), "I think\n#### 7.0", gsm), 1);
  EXPECT_EQ(score(exact(RewardExtract::marker), "7", gsm), 0) << "without the marker nothing is an answer";
  EXPECT_EQ(score(exact(RewardExtract::number), "7", Json{{"answer", 7}}), 1);
  EXPECT_TRUE(std::isnan(score(exact(RewardExtract::whole), "7", Json{{"answer", Json()}})));
  const auto reward = make_reward(exact(RewardExtract::whole), 10);
  EXPECT_THAT(message_of<ConfigError>([&] {
                reward->require_columns(Json{{"result", 1}});
              }),
              HasSubstr("has no \"answer\""));
  EXPECT_THAT(message_of<ConfigError>([&] {
                reward->require_columns(Json{{"answer", Json::array()}});
              }),
              HasSubstr("expected a text or a number"));
}

TEST(Reward, looks_for_a_pattern) {
  RewardConfig config;
  config.type = RewardType::regex;
  EXPECT_THAT(message_of<ConfigError>([&] { make_reward(config, 10); }), HasSubstr("has no pattern"));
  config.pattern.value = "(?s)^<think>.*</think>.+$", config.pattern.given = true;
  EXPECT_EQ(score(config, "<think>a\nb</think> c"), 1);
  EXPECT_EQ(score(config, "a</think> c"), 0);
  config.pattern.value = "^$";
  EXPECT_EQ(score(config, ""), 1);
  EXPECT_EQ(score(config, "\xFF"), 0) << "bytes of no character are a text as well";
  config.pattern.value = "^(a+)+$";
  EXPECT_TRUE(std::isnan(score(config, std::string(64, 'a') + "b"))) << "too many steps: not scored";
}

/// TRL's formulas by hand.
TEST(Reward, counts_tokens) {
  const auto ids = [](int count) { return std::vector<int32_t>(static_cast<size_t>(count), 5); };
  RewardConfig config;
  config.type = RewardType::soft_overlong;
  config.soft_punish_cache.value = 4, config.soft_punish_cache.given = true;
  EXPECT_EQ(score(config, "", {}, ids(6)), 0);
  EXPECT_EQ(score(config, "", {}, ids(7)), -0.25);
  EXPECT_EQ(score(config, "", {}, ids(10)), -1);
  EXPECT_EQ(score(config, "", {}, ids(11)), -1);
  config.type = RewardType::repetition;
  EXPECT_EQ(score(config, "", {}, {1, 2, 3, 1, 2, 3}), -0.25) << "three of four triples differ";
  EXPECT_EQ(score(config, "", {}, {1, 2}), 0);
  config.type = RewardType::length;
  config.target_length.value = 4, config.target_length.given = true;
  EXPECT_EQ(score(config, "", {}, ids(4)), 1);
  EXPECT_EQ(score(config, "", {}, ids(3)), 0.75);
  EXPECT_EQ(score(config, "", {}, ids(9)), 0);
  config.type = RewardType::reward_model;
  EXPECT_THAT(message_of<ConfigError>([&] { make_reward(config, 10); }), HasSubstr("reward reward_model has no path"));
}

class RewardPrograms : public testing::Test {
 protected:
  /// What a program of the shell makes of three answers, twice.
  std::vector<double> judged_by(const std::string& script, double seconds = 10) {
    RewardConfig config;
    config.type = RewardType::command;
    config.command.value = {"/bin/sh", "-c", script};
    config.timeout_seconds.value = seconds;
    const auto reward = make_reward(config, 10);
    const Json columns{{"prompt", "2 + 2"}, {"answer", 4}};
    const std::vector<int32_t> ids{7, 8};
    const std::vector<WrittenAnswer> answers(3, {columns, "four", ids});
    std::vector<double> scores = reward->of(answers);
    for (const double score : reward->of(answers)) scores.push_back(score);
    return scores;
  }
  std::string refusal_of(const std::string& script, double seconds = 10) {
    return message_of<IoError>([&] { judged_by(script, seconds); });
  }
};

TEST_F(RewardPrograms, judge_in_any_order) {
  // Its answer is the length of each line, told from the last to the first of three.
  const std::vector<double> scores = judged_by(
      R"(n=0; while read -r line; do id=${line#*\"id\":}; id=${id%%,*};
         out="{\"id\": $id, \"reward\": $id}
$out"; n=$((n + 1)); if [ $n = 3 ]; then printf '%s' "$out"; out=; n=0; fi; done)");
  EXPECT_EQ(scores, (std::vector<double>{0, 1, 2, 3, 4, 5}));
}

TEST_F(RewardPrograms, see_the_answer_and_its_columns) {
  const std::vector<double> scores = judged_by(
      R"(while read -r line; do id=${line#*\"id\":}; id=${id%%,*}; reward=null; case "$line" in
         *'"answer":4,"completion":"four","completion_ids":[7,8]'*'"prompt":"2 + 2"'*) reward=0.5;; esac;
         echo "{\"id\": $id, \"reward\": $reward}"; done)");
  EXPECT_EQ(scores, std::vector<double>(6, 0.5));
  const std::vector<double> none =
      judged_by(R"(while read -r line; do id=${line#*\"id\":}; echo "{\"id\": ${id%%,*}, \"reward\": null}"; done)");
  EXPECT_TRUE(std::isnan(none[5]));
}

TEST_F(RewardPrograms, are_named_when_they_fail) {
  EXPECT_THAT(refusal_of("exit 3"), HasSubstr("reward command: /bin/sh ended with exit code 3 before it had judged all "
                                              "answers, and again after a restart"));
  EXPECT_THAT(refusal_of("cat > /dev/null", 0.2), HasSubstr("has judged 0 of 3 answers in timeout_seconds 0.2"));
  EXPECT_THAT(refusal_of("echo good; cat > /dev/null"), HasSubstr("wrote \"good\", expected"));
  EXPECT_THAT(refusal_of("echo '{\"id\": 0, \"reward\": \"1\"}'; cat > /dev/null"), HasSubstr("is a finite number"));
  EXPECT_THAT(refusal_of("echo '{\"id\": 9, \"reward\": 1}'; cat > /dev/null"), HasSubstr("nobody asked for that id"));
  EXPECT_THAT(refusal_of("for i in 1 2; do echo '{\"id\": 0, \"reward\": 1}'; done; cat > /dev/null"),
              HasSubstr("that id has its reward already"));
  RewardConfig config;
  config.type = RewardType::command;
  config.command.value = {"/no/such/program"};
  const Json columns;
  const WrittenAnswer answer{columns, "", {}};
  EXPECT_THAT(message_of<IoError>([&] { make_reward(config, 10)->of(std::span(&answer, 1)); }),
              HasSubstr("/no/such/program can not be started: No such file"));
}

}  // namespace
}  // namespace nought::reward_test
