// Tiles of Units are a number or auto, and what has none is refused by its name.
#include "support/resolved.h"
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nought::resolve_tiles_test {
namespace {

using test::error_of;
using test::plan_of;
using test::reason_of;
using testing::HasSubstr;

std::string run_of(const std::string& training, int stage = 3) {
  return fmt::format(R"({{"training": {{{}}}, "deepspeed": {{"zero_optimization": {{"stage": {}}}}}}})", training,
                     stage);
}

TEST(ResolveTiles, they_are_a_number_or_what_fits) {
  EXPECT_EQ(plan_of("{}", 2).layout.recompute.unit_tiles, 1);
  EXPECT_EQ(plan_of(run_of(R"("memory_centric_tiling": 4)"), 2).layout.recompute.unit_tiles, 4);
  EXPECT_EQ(plan_of(run_of(R"("memory_centric_tiling": 4)", 2), 2).layout.recompute.unit_tiles, 4);
  EXPECT_EQ(plan_of(run_of(R"("memory_centric_tiling": 1)", 0), 2).layout.recompute.unit_tiles, 1);
  const RunPlan automatic = plan_of(run_of(R"("memory_centric_tiling": "auto", "device_memory": "1GB")"), 2);
  EXPECT_EQ(automatic.layout.recompute.unit_tiles, 0);
  EXPECT_THAT(reason_of(automatic, "memory_centric_tiling"), HasSubstr("as few as fit"));
  EXPECT_THAT(error_of(run_of(R"("memory_centric_tiling": "auto")")), HasSubstr("write training.device_memory"));
  EXPECT_THAT(error_of(run_of(R"("memory_centric_tiling": 0)")),
              HasSubstr("training.memory_centric_tiling: expected at least 1, got 0"));
}

TEST(ResolveTiles, what_has_none_is_refused_by_name) {
  const std::string tiles = R"("memory_centric_tiling": 4)";
  for (const int stage : {0, 1})
    EXPECT_THAT(error_of(run_of(tiles, stage)), HasSubstr(fmt::format("at ZeRO stage {}", stage)));
  EXPECT_THAT(error_of(run_of(tiles + R"(, "fp8": "delayed")")), HasSubstr("training.fp8"));
  EXPECT_THAT(error_of(run_of(tiles + R"(, "optim": "muon")")), HasSubstr("Lamb and Muon"));
  EXPECT_THAT(error_of(run_of(tiles + R"(, "optim": "lamb")")), HasSubstr("Lamb and Muon"));
}

TEST(ResolveTiles, one_rank_is_told_that_they_do_nothing) {
  const std::string run = run_of(R"("memory_centric_tiling": 4)");
  EXPECT_THAT(plan_of(run, 1).warnings, testing::Contains(HasSubstr("memory_centric_tiling has no effect")));
  EXPECT_THAT(plan_of(run, 2).warnings, Not(testing::Contains(HasSubstr("memory_centric_tiling"))));
}

}  // namespace
}  // namespace nought::resolve_tiles_test
