// Kernels around kernels: results are seen, operations are timed, and the inner ones compute.
#include "nought/kernels/watch.h"

#include "support/kernel_test.h"
#include <gmock/gmock.h>

#include "nought/kernels/timed.h"
#include "nought/kernels/work.h"

namespace nought {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class AroundKernels : public test::KernelTest {};

TEST_F(AroundKernels, every_result_is_seen_after_it_was_computed) {
  std::vector<std::string> seen;
  const auto kernels = make_watching_kernels(
      make_reference_kernels(), [&](std::string_view operation, std::string_view result, const Tensor& values) {
        seen.push_back(fmt::format("{} {} {}", operation, result, values.flat(0, 1).item()));
      });
  Stream stream;
  const Tensor x = of<float>({3, 4}), y = of<float>({1, 2}), weight = of<float>({1, 1}), rstd = of<float>({0});
  kernels->run(Add{.a = x, .b = y, .out = y}, stream);
  kernels->run(RmsNorm{.x = x.reshape({1, 2}), .weight = weight, .y = x.reshape({1, 2}), .rstd = rstd, .eps = 51.5},
               stream);
  EXPECT_THAT(seen, ElementsAre("Add out 4", "RmsNorm y 0.375", "RmsNorm rstd 0.125"));
}

TEST_F(AroundKernels, updates_and_fills_are_not_watched) {
  int seen = 0;
  const auto kernels = make_watching_kernels(make_reference_kernels(),
                                             [&](std::string_view, std::string_view, const Tensor&) { ++seen; });
  Stream stream;
  const Tensor x = of<float>({3, 4});
  kernels->run(Fill{.x = x, .value = 2}, stream);
  kernels->run(Sgd{.parameter = x, .momentum_buffer = {}, .gradient = x, .lr = 1}, stream);
  EXPECT_EQ(seen, 0);
  EXPECT_EQ(kernels->name(), "reference");
}

TEST_F(AroundKernels, operations_are_on_the_timeline_with_what_they_cost) {
  const auto timeline = std::make_shared<Timeline>();
  const auto kernels = make_timed_kernels(make_reference_kernels(), timeline);
  Stream stream;
  const Tensor a = random({3, 5}, DType::f32, 1), b = random({7, 5}, DType::f32, 2), c = empty({3, 7}, DType::f32);
  const MatMul product{.a = a, .b = b, .c = c, .transpose_b = true};
  kernels->run(product, stream);
  EXPECT_THAT(timeline->take(), IsEmpty()) << "nobody records yet";
  timeline->start();
  kernels->run(product, stream);
  kernels->run(Fill{.x = c, .value = 1}, stream);
  const std::vector<TraceEvent> spans = timeline->take();
  ASSERT_EQ(spans.size(), 2u);
  EXPECT_EQ(spans[0].name, "MatMul 3 x 7 x 5, b'");
  EXPECT_EQ(spans[0].kind, TraceEventKind::operation);
  EXPECT_EQ(spans[0].flops, work_of(product).flops);
  EXPECT_EQ(spans[1].name, "Fill");
  EXPECT_EQ(c.flat(0, 1).item(), 1);
}

}  // namespace
}  // namespace nought
