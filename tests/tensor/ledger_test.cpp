#include <gtest/gtest.h>

#include "nought/tensor/memory.h"
#include "nought/tensor/pool.h"

namespace nought::ledger_test {
namespace {

TEST(MemoryLedger, a_peak_stays_when_less_is_held_and_every_pool_has_its_own) {
  MemoryLedger ledger;
  ledger.add(Category::gradients, Pool::device, 100);
  ledger.remove(Category::gradients, Pool::device, 60);
  ledger.add(Category::activations, Pool::device, 80);
  ledger.add(Category::gradients, Pool::device, 20);
  ledger.add(Category::gradients, Pool::host, 7);
  EXPECT_EQ(ledger.current(Category::gradients), 60);
  EXPECT_EQ(ledger.peak(Category::gradients), 100);
  EXPECT_EQ(ledger.current_total(), 140);
  EXPECT_EQ(ledger.peak_total(), 140);
  EXPECT_EQ(ledger.at_peak(Category::gradients), 60) << "at the peak of all together";
  EXPECT_EQ(ledger.at_peak(Category::activations), 80);
  EXPECT_EQ(ledger.peak(Category::gradients, Pool::host), 7);
  EXPECT_EQ(ledger.peak_total(Pool::host), 7);
}

TEST(MemoryLedger, forgotten_peaks_restart_from_what_is_alive) {
  MemoryLedger ledger;
  ledger.add(Category::workspace, Pool::device, 50);
  ledger.remove(Category::workspace, Pool::device, 30);
  ledger.reset_peaks();
  EXPECT_EQ(ledger.peak(Category::workspace), 20);
  EXPECT_EQ(ledger.peak_total(), 20);
  EXPECT_EQ(ledger.at_peak(Category::workspace), 20);
}

}  // namespace
}  // namespace nought::ledger_test
