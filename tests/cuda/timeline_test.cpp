// Events of a timeline last as long as the device works, and not as long as the host submits.
#include "nought/tensor/timeline.h"

#include "cuda_emulation/control.h"
#include <gtest/gtest.h>

#include "nought/cuda/backend/kernels.h"
#include "nought/kernels/timed.h"

namespace nought::timeline_test {
namespace {

using Clock = TraceEvent::Clock;

TEST(CudaTimeline, operations_are_timed_where_they_run) {
  const auto timeline = std::make_shared<Timeline>();
  Context context = cuda::make_context();
  timeline->follow(context.stream);
  context.kernels = make_timed_kernels(context.kernels, timeline);
  const Tensor x = context.zeros({1000}, DType::f32), y = context.zeros({1000}, DType::f32);
  timeline->start();
  Clock::time_point submitted;
  {
    const TimedScope unit(timeline.get(), TraceEventKind::unit, "unit");
    context.run(Fill{.x = x, .value = 2});
    context.run(AddTo{.x = x, .into = y});
    const TimedScope collective(timeline.get(), TraceEventKind::collective, "all_gather");
    submitted = Clock::now();
  }
  const int64_t kernels = emulation::kernels_run();
  EXPECT_EQ(context.to_host<float>(y)[0], 2);
  EXPECT_EQ(emulation::kernels_run(), kernels + 2) << "the stream was late";
  const std::vector<TraceEvent> events = timeline->take();
  ASSERT_EQ(events.size(), 4);
  const TraceEvent &fill = events[0], &add = events[1], &collective = events[2], &unit = events[3];
  // A float of milliseconds is coarser than the clock.
  constexpr std::chrono::microseconds kCoarse(20);
  EXPECT_GE(fill.begin + kCoarse, submitted) << "nothing ran before somebody waited";
  EXPECT_GE(fill.end + kCoarse, fill.begin);
  EXPECT_GE(add.begin + kCoarse, fill.end);
  EXPECT_GE(add.end + kCoarse, add.begin);
  EXPECT_GE(fill.begin + kCoarse, unit.begin);
  EXPECT_LE(add.end, unit.end + kCoarse);
  EXPECT_GE(collective.begin, submitted - std::chrono::seconds(1));
  EXPECT_LE(collective.begin, submitted) << "a collective has the time of its thread";
}

TEST(CudaTimeline, nothing_waits_while_nothing_is_recorded) {
  const auto timeline = std::make_shared<Timeline>();
  const Context context = cuda::make_context();
  timeline->follow(context.stream);
  const int64_t kernels = emulation::kernels_run();
  const Tensor x = context.zeros({10}, DType::f32);
  {
    const TimedScope unit(timeline.get(), TraceEventKind::unit, "unit");
    context.run(Fill{.x = x, .value = 2});
  }
  EXPECT_EQ(emulation::kernels_run(), kernels);
  EXPECT_TRUE(timeline->take().empty());
}

}  // namespace
}  // namespace nought::timeline_test
