// 100% MFU is the best peak that a machine has shown, for ranks that have a core each as far as there are cores.
#include "nought/measure/kept_peak.h"

#include <cstdlib>
#include <fstream>

#include "support/temp_folder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/base/cores.h"
#include "nought/base/json.h"
#include "nought/comm/thread.h"
#include "nought/kernels/limits.h"
#include "nought/measure/peak.h"

namespace nought::kept_peak_test {
namespace {

TEST(KeptPeak, is_the_best_of_all_that_were_measured_by_key) {
  const test::TempFolder folder;
  const std::string file = (folder.path() / "below" / "peak.json").string();
  EXPECT_EQ(best_peak(file, "a", 5e9), 5e9);
  EXPECT_EQ(best_peak(file, "a", 3e9), 5e9);
  EXPECT_EQ(best_peak(file, "b", 3e9), 3e9);
  EXPECT_EQ(best_peak(file, "a", 7e9), 7e9);
  EXPECT_EQ(best_peak(file, "a", 1e9), 7e9);
  EXPECT_EQ(best_peak("", "a", 1e9), 1e9) << "nowhere to keep it";
  std::ofstream(file) << "no JSON";
  EXPECT_EQ(best_peak(file, "a", 1e9), 1e9);
  EXPECT_EQ(best_peak("/dev/null/at all", "a", 1e9), 1e9);
}

TEST(KeptPeak, a_rate_is_measured_once_for_each_key) {
  const test::TempFolder folder;
  const std::string file = (folder.path() / "below" / "peak.json").string();
  int measured = 0;
  const auto measure = [&] { return ++measured * 1e9; };
  EXPECT_EQ(kept_rate(file, "a", measure), 1e9);
  EXPECT_EQ(kept_rate(file, "a", measure), 1e9);
  EXPECT_EQ(kept_rate(file, "b", measure), 2e9);
  EXPECT_EQ(kept_rate("", "a", measure), 3e9) << "nowhere to keep it";
  EXPECT_EQ(kept_rate("", "a", measure), 4e9);
  std::ofstream(file) << "no JSON";
  EXPECT_EQ(kept_rate(file, "a", measure), 5e9);
}

TEST(KeptPeak, the_rate_of_products_is_kept_by_dtype_and_threads) {
  const test::TempFolder folder;
  const std::string file = (folder.path() / "peak.json").string();
  const Context context = Context::cpu();
  const double once = kept_product_rate(context, DType::bf16, 1, file);
  EXPECT_GT(once, 0);
  EXPECT_EQ(kept_product_rate(context, DType::bf16, 1, file), once);
  EXPECT_NE(kept_product_rate(context, DType::bf16, 2, file), once) << "measured anew";
  EXPECT_NE(kept_product_rate(context, DType::f32, 1, file), once);
}

TEST(KeptPeak, is_100_percent_of_a_run_and_the_line_says_so) {
  const test::TempFolder folder;
  const std::string file = (folder.path() / "peak.json").string(), loop(matrix_peak_name(DType::f32));
  const double once = 1e15;  // no core is as fast
  best_peak(file, kept_peak_key(loop), once);
  for (const int ranks : {1, 2})
    run_ranks(ranks, [&](Communicator& world, const Context& context) {
      const MatrixPeak peak(world, context, DType::f32, file);
      EXPECT_DOUBLE_EQ(peak.flops(), ranks * once * cores_for_each(find_cores(), ranks));
      EXPECT_THAT(peak.note(), testing::HasSubstr("the best that this machine has shown: 0% of it now"));
    });
}

}  // namespace
}  // namespace nought::kept_peak_test
