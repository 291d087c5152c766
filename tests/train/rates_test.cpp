// The rates of this machine are there, and what can not be measured is said.
#include "nought/measure/rates.h"

#include <filesystem>

#include "support/temp_folder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/comm/thread.h"

namespace nought::rates_test {
namespace {

RunPlan plan_of(const std::string& folder) {
  RunPlan plan;
  plan.layout.sharding.offload_optimizer = {.tier = {Pool::file, folder}};
  return plan;
}

TEST(Rates, all_ranks_get_the_same_and_files_are_measured_only_for_states_in_files) {
  const test::TempFolder folder;
  std::vector<MachineRates> rates(2);
  run_ranks(2, [&](Communicator& ranks, const Context&) {
    rates[static_cast<size_t>(ranks.rank())] = measure_rates(ranks, plan_of(folder.path().string()), {});
  });
  for (const MachineRates& each : rates) {
    EXPECT_GT(each.flops, 0);
    EXPECT_GT(each.memory, 0);
    EXPECT_GT(each.call, 0);
    EXPECT_GT(each.gathered, 0);
    EXPECT_GT(each.read, 0);
    EXPECT_GT(each.write, 0);
    EXPECT_EQ(each.note, "");
  }
  EXPECT_EQ(rates[0].read, rates[1].read);
  EXPECT_EQ(rates[0].flops, rates[1].flops);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  const auto self = make_self_communicator();
  EXPECT_EQ(measure_rates(*self, RunPlan(), {}).read, 0);
}

TEST(Rates, a_folder_that_is_not_there_is_left_out_with_a_reason) {
  const auto self = make_self_communicator();
  const MachineRates rates = measure_rates(*self, plan_of("/no such folder"), {});
  EXPECT_EQ(rates.read, 0);
  EXPECT_THAT(rates.note, testing::HasSubstr("files are left out: cannot measure /no such folder"));
}

}  // namespace
}  // namespace nought::rates_test
