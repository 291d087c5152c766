#include "nought/bench/load_report.h"

#include "support/message_of.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "nought/base/error.h"
#include "nought/base/json.h"
#include "nought/measure/samples.h"

namespace nought::load_report_test {
namespace {

using testing::HasSubstr;

TEST(Samples, a_quantile_lies_between_two_values_as_numpy_has_it) {
  const Samples samples{{5, 1, 4, 2, 3}};
  EXPECT_EQ(samples.quantile(0), 1);
  EXPECT_EQ(samples.quantile(1), 5);
  EXPECT_DOUBLE_EQ(samples.quantile(0.95), 4.8);
  EXPECT_DOUBLE_EQ(samples.quantile(0.1), 1.4);
}

/// Two requests of three tokens, one of a single token, and one that failed.
LoadRun run() {
  return {.level = {.clients = 2, .requests = 4},
          .seconds = 10,
          .requests = {
              {.begin = 1, .end = 5, .texts = {2, 3, 5}, .prompt_tokens = 10, .cached_tokens = 6, .answer_tokens = 3},
              {.begin = 0, .end = 9, .texts = {4, 8}, .prompt_tokens = 20, .answer_tokens = 3},
              {.begin = 5, .end = 10, .texts = {8}, .prompt_tokens = 30, .answer_tokens = 1},
              {.begin = 5, .end = 6, .error = "it broke"}}};
}

TEST(LoadSummary, times_are_those_of_a_client) {
  const LoadSummary summary = summarize(run(), {.ttft = 3, .itl = 3});
  EXPECT_EQ(summary.completed, 3);
  EXPECT_EQ(summary.failed, 1);
  EXPECT_EQ(summary.first_error, "it broke");
  EXPECT_DOUBLE_EQ(summary.prompt_tokens, 20);
  EXPECT_DOUBLE_EQ(summary.cached_tokens, 2);
  EXPECT_DOUBLE_EQ(summary.per_second(summary.answer_tokens), 0.7);
  EXPECT_DOUBLE_EQ(summary.ttft->p50, 3);        // of 1, 4, 3
  EXPECT_DOUBLE_EQ(summary.itl->mean, 7.0 / 3);  // of 1, 2, 4
  EXPECT_DOUBLE_EQ(summary.tpot->mean, 1.75);    // of 1.5 and 2: a text may hold several tokens
  EXPECT_DOUBLE_EQ(summary.e2el->p50, 4);        // of 4, 8, 3
  EXPECT_EQ(summary.good, 2);
  EXPECT_EQ(summarize(run(), {.tpot = 1.6}).good, 2);
  EXPECT_EQ(summarize(run(), {.e2el = 1}).good, 0);
  EXPECT_EQ(summarize(run(), {}).good, std::nullopt);
}

TEST(LoadSummary, a_table_has_a_column_for_each_load) {
  LoadRun rate = run();
  rate.level = {.rate = 2.5, .requests = 4};
  for (RequestTiming& each : rate.requests) each.error = "gone";
  const std::vector<LoadSummary> loads{summarize(run(), {.ttft = 3}), summarize(rate, {.ttft = 3})};
  const std::string table = to_table(loads);
  EXPECT_THAT(table, HasSubstr("                           2 clients  2.5 requests/s\n"));
  EXPECT_THAT(table, HasSubstr("\nrequests                           3               0\n"));
  EXPECT_THAT(table, HasSubstr("\nTTFT p50, ms                  3000.0               -\n"));
  EXPECT_THAT(table, HasSubstr("\ngoodput, requests/s            0.200           0.000\n"));
  const OrderedJson json = to_json(loads);
  EXPECT_EQ(json[0]["clients"], 2);
  EXPECT_EQ(json[0]["good"], 2);
  EXPECT_EQ(json[0]["ttft_seconds"]["p50"], 3.0);
  EXPECT_EQ(json[1]["rate"], 2.5);
  EXPECT_TRUE(json[1]["itl_seconds"].is_null());
  EXPECT_EQ(json[1]["first_error"], "gone");
}

TEST(LoadLimits, limits_are_read_in_milliseconds) {
  const LoadLimits limits = parse_load_limits("ttft:2000,tpot:0.5");
  EXPECT_EQ(limits.ttft, 2.0);
  EXPECT_EQ(limits.tpot, 0.0005);
  EXPECT_FALSE(limits.itl || limits.e2el);
  EXPECT_FALSE(parse_load_limits("").any());
  for (const char* bad : {"ttft", "ttft:", "ttft:x", "ttft:-1", "foo:1", "ttft:1,,"})
    EXPECT_THAT(test::message_of<ConfigError>([&] { parse_load_limits(bad); }), HasSubstr("--goodput")) << bad;
}

}  // namespace
}  // namespace nought::load_report_test
