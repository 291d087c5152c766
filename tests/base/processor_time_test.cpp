#include "nought/base/processor_time.h"

#include <thread>

#include <gtest/gtest.h>

namespace nought::processor_time_test {
namespace {

TEST(ProcessorTime, work_takes_some_and_other_threads_take_none_of_it) {
  volatile unsigned sum = 0;
  const auto work = [&] {
    for (unsigned i = 0; i < 100'000; ++i) sum = sum + i;
  };
  EXPECT_GT(processor_seconds_of(work), 0);
  const double before = processor_seconds();
  double within = 0;
  std::thread([&] {
    within = processor_seconds_of([&] {
      for (int i = 0; i < 100; ++i) work();
    });
  }).join();
  EXPECT_LT(processor_seconds() - before, within);
}

}  // namespace
}  // namespace nought::processor_time_test
