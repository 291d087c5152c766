// Kernels around kernels: results are seen, operations are timed, and the inner ones compute.
#include "nought/kernels/watch.h"

#include <chrono>
#include <thread>

#include "support/operation_samples.h"
#include <gmock/gmock.h>

#include "nought/kernels/timed.h"
#include "nought/kernels/work.h"

namespace nought::watch_test {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Not;

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

TEST_F(AroundKernels, every_float_that_any_operation_writes_is_seen_and_nothing_else) {
  std::vector<std::string> seen, expected;
  const auto kernels = make_watching_kernels(make_reference_kernels(),
                                             [&](std::string_view operation, std::string_view result, const Tensor&) {
                                               seen.push_back(fmt::format("{} {}", operation, result));
                                             });
  Stream stream;
  test::for_each_sample(*memory_, [&](const test::AnyOperation& op) {
    op.run(*kernels, stream);
    for_each_operand(op, [&](const Operand& operand) {
      if (!operand.use.writes() || !is_float(operand.tensor.dtype()) || operand.use.may_be_infinite) return;
      for (int64_t i = 0; i < (operand.rows ? operand.rows->count : 1); ++i)
        expected.push_back(fmt::format("{} {}", operation_name(op), operand.result_name()));
    });
  });
  EXPECT_EQ(seen, expected);
  for (const char* one : {"MatMul c", "Fill x", "Adam parameter", "CrossEntropy gradient of the logits", "AbsMax out"})
    EXPECT_THAT(seen, Contains(one));
  for (const char* one : {"MatMul a", "Route experts", "GroupByExpert row", "Attention lse", "CrossEntropy logits"})
    EXPECT_THAT(seen, Not(Contains(one)));
  EXPECT_EQ(kernels->name(), "reference");
}

TEST_F(AroundKernels, heads_are_seen_token_by_token_without_what_lies_beside_them) {
  std::vector<std::vector<float>> seen;
  const auto kernels = make_watching_kernels(
      make_reference_kernels(),
      [&](std::string_view, std::string_view, const Tensor& values) { seen.push_back(values.to_vector<float>()); });
  Stream stream;
  const Tensor from = of<float>({1, 2, 3, 4}), to = of<float>({9, 0, 0, 9, 9, 0, 0, 9});
  kernels->run(CopyHeads{.from = {from, 0, 2}, .to = {to, 1, 4}, .tokens = 2, .num_heads = 1, .head_dim = 2}, stream);
  EXPECT_THAT(seen, ElementsAre(std::vector<float>{1, 2}, std::vector<float>{3, 4}));
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
  EXPECT_EQ(spans[0].bytes, static_cast<int64_t>(work_of(product).bytes));
  EXPECT_EQ(spans[0].arguments, "a f32[3, 5], b f32[7, 5], c f32[3, 7], transpose_b");
  EXPECT_EQ(spans[1].name, "Fill");
  EXPECT_EQ(c.flat(0, 1).item(), 1);
}

TEST_F(AroundKernels, what_comes_to_the_host_was_written_before) {
  const Context context{memory_, make_reference_kernels(), std::make_shared<Stream>(Stream::Kind::worker)};
  const Tensor x = of<float>({0, 0});
  context.stream->submit([] { std::this_thread::sleep_for(std::chrono::milliseconds(20)); });
  context.run(Fill{.x = x, .value = 3});
  EXPECT_THAT(context.to_host<int64_t>(x), ElementsAre(3, 3));
}

}  // namespace
}  // namespace nought::watch_test
