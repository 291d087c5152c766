#include "nought/base/text.h"

#include <gtest/gtest.h>

#include "nought/base/error.h"

namespace nought::text_test {
namespace {

TEST(Text, nearest_name_finds_typing_errors_and_refuses_other_words) {
  const std::vector<std::string> names{"learning_rate", "warmup_steps", "stage"};
  EXPECT_EQ(nearest_name("learnig_rate", names), "learning_rate");
  EXPECT_EQ(nearest_name("stge", names), "stage");
  EXPECT_EQ(nearest_name("dropout", names), "");
  EXPECT_EQ(did_you_mean("warmup_step", names), " (did you mean \"warmup_steps\"?)");
}

TEST(Text, the_distance_within_a_text_is_that_of_its_nearest_part) {
  EXPECT_EQ(edit_distance_within("norm", "model.norm.weight"), 0u);
  EXPECT_EQ(edit_distance_within("nrm", "model.norm.weight"), 1u);
  EXPECT_EQ(edit_distance_within("norms", "model.norm"), 1u);
  EXPECT_EQ(edit_distance_within("", "x"), 0u);
  EXPECT_EQ(edit_distance_within("abc", ""), 3u);
}

TEST(Text, sizes_counts_and_durations_read_well) {
  EXPECT_EQ(format_bytes(340), "340 B");
  EXPECT_EQ(format_bytes(1536), "1.50 KiB");
  EXPECT_EQ(format_bytes(int64_t{12} << 20), "12.0 MiB");
  EXPECT_EQ(format_count(10.2e6), "10.2M");
  EXPECT_EQ(format_count(20814.8e12), "20.8P");
  EXPECT_EQ(format_token_rate(436.7), "437 tokens/s");
  EXPECT_EQ(format_token_rate(1331.4), "1.33K tokens/s");
  EXPECT_EQ(format_rate(433.8e9, "FLOP/s"), "434 GFLOP/s");
  EXPECT_EQ(format_rate(999.9e6, "FLOP"), "1 GFLOP");
  EXPECT_EQ(format_duration(185), "3m05s");
}

TEST(Text, sizes_are_read_in_powers_of_1000_and_of_1024) {
  EXPECT_EQ(parse_bytes("2GiB", "budget"), int64_t{2} << 30);
  EXPECT_EQ(parse_bytes("1.5 MiB", "budget"), 3 << 19);
  EXPECT_EQ(parse_bytes("80GB", "budget"), 80'000'000'000);
  EXPECT_EQ(parse_bytes("4096", "budget"), 4096);
  for (const char* wrong : {"", "GiB", "2 gigs", "-1GiB", "nan", "1e30"})
    EXPECT_THROW(parse_bytes(wrong, "budget"), ConfigError) << wrong;
}

TEST(Text, times_are_read_as_they_are_printed) {
  EXPECT_EQ(parse_duration("90", "budget"), 90);
  EXPECT_EQ(parse_duration("45s", "budget"), 45);
  EXPECT_EQ(parse_duration("2m30s", "budget"), 150);
  EXPECT_EQ(parse_duration("1.5h", "budget"), 5400);
  EXPECT_EQ(parse_duration("1h02m", "budget"), 3720);
  for (const char* wrong : {"", "m", "0", "-3s", "3x", "5m90", "1m1h", "1m1m", "3s ", "inf", "nan", "1e30s"})
    EXPECT_THROW(parse_duration(wrong, "budget"), ConfigError) << wrong;
}

TEST(Text, the_nearest_name_is_the_one_of_the_least_distance_wherever_it_stands) {
  EXPECT_EQ(nearest_name("stage", std::vector<std::string>{"stages", "stagger"}), "stages");
  EXPECT_EQ(nearest_name("stage", std::vector<std::string>{"stagger", "stages"}), "stages");
  EXPECT_EQ(nearest_name("stage", std::vector<std::string>{"optimizer"}), "");
}

TEST(Text, a_part_of_a_long_name_means_the_shortest_name_that_has_it) {
  const std::vector<std::string> names{"pipeline_parallel_first_stage_less_layers", "pipeline_parallel_schedule"};
  EXPECT_EQ(nearest_name("first_stage_less_layers", names), names[0]);
  EXPECT_EQ(nearest_name("pipeline_parallel", names), names[1]);
  EXPECT_EQ(nearest_name("less", names), "");
}

}  // namespace
}  // namespace nought::text_test
