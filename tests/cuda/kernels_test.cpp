// Every operation on a CUDA device: by its own kernel, or on the host where it exceeds its limits. tests/kernels has
// what each operation means; its tests run here too.
#include "nought/cuda/backend/kernels.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <thread>

#include "cuda_emulation/control.h"
#include "support/message_of.h"
#include "support/typed_operation_samples.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nought::cuda::kernels_test {
namespace {

using test::expect_same_bits;
using test::message_of;
using ::testing::HasSubstr;

/// Runs a copy of `op` on the device, on copies of its operands. Returns those that it writes, on the host.
std::vector<Tensor> run_on(const Context& context, const test::AnyOperation& op) {
  std::map<const std::byte*, Tensor> placed;
  std::vector<Tensor> written;
  const auto there = op.moved([&](const Operand& operand) {
    const Tensor own = operand.tensor;
    Tensor& copied = placed[own.raw()];
    if (!copied) {
      copied = context.empty(own.shape(), own.dtype());
      upload_bytes({own.raw(), static_cast<size_t>(own.bytes())}, copied, *context.stream);
    }
    if (operand.use.writes()) written.push_back(copied);
    return copied;
  });
  there->run(context);
  for (Tensor& tensor : written) tensor = context.on_host(tensor);
  return written;
}

/// Close, and NaN where the other is: samples are random, and one has sums of squares below 0. Where a sum cancels, its
/// rounding is that of its terms, which are as large as other elements.
void expect_agreement(const Tensor& actual, const Tensor& expected) {
  const auto a = actual.to_vector<double>(), e = expected.to_vector<double>();
  ASSERT_EQ(a.size(), e.size());
  double largest = 1;
  for (const double each : e)
    if (std::isfinite(each)) largest = std::max(largest, std::abs(each));
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) && std::isnan(e[i])) continue;
    EXPECT_NEAR(a[i], e[i], 1e-6 * largest + 1e-5 * std::abs(e[i])) << "element " << i << " of " << expected.str();
  }
}

int64_t runs_on_host(const Context& context) {
  return dynamic_cast<const CudaKernels&>(*context.kernels).runs_on_host();
}

TEST(CudaKernels, every_operation_has_the_results_of_the_reference) {
  const Context context = make_context({.poison = true}), plain = Context::reference();
  std::set<std::string> on_host;
  test::for_each_sample(*plain.memory, [&](const test::AnyOperation& sample) {
    SCOPED_TRACE(operation_name(sample));
    const int64_t before = runs_on_host(context);
    const std::vector<Tensor> actual = run_on(context, sample);
    if (runs_on_host(context) > before) on_host.emplace(operation_name(sample));
    sample.run(plain);
    size_t next = 0;
    for_each_operand(sample, [&](const Operand& operand) {
      if (!operand.tensor || !operand.use.writes()) return;
      if (is_float(operand.tensor.dtype())) {
        expect_agreement(actual[next++], operand.tensor);
      } else {
        expect_same_bits(actual[next++], operand.tensor);
      }
    });
  });
  EXPECT_THAT(on_host, ::testing::ElementsAre("CustomUpdate", "DeltaRule", "DeltaRuleBackward", "EncodeHeads", "Gate",
                                              "GateBackward", "KeepMasked", "RoundRows", "RoundToGrid", "RowRanges",
                                              "ShortConv", "ShortConvBackward"))
      << "what exceeds a limit, layers with a state, caches in codes, what training for few bits rounds, and code of "
         "the "
         "user alone run there (docs/cuda.md)";
}

TEST(CudaKernels, enqueue_and_let_the_host_go_on) {
  const Context context = make_context();
  const Tensor x = context.zeros({1000}, DType::f32), out = context.empty({1}, DType::f64);
  const int64_t waits = context.stream->waits_of(std::this_thread::get_id()), kernels = emulation::kernels_run();
  context.run(Fill{.x = x, .value = 2});
  context.run(AddTo{.x = x, .into = x});
  context.run(SumSquares{.x = x, .out = out});
  EXPECT_EQ(context.stream->waits_of(std::this_thread::get_id()), waits);
  EXPECT_EQ(emulation::kernels_run(), kernels) << "the stream is late";
  EXPECT_EQ(context.to_host<double>(out)[0], 16000);
  EXPECT_EQ(emulation::kernels_run(), kernels + 4) << "a sum of squares is two";
}

TEST(CudaKernels, bits_do_not_depend_on_the_number_of_blocks_or_the_order_of_threads) {
  const auto memory = Memory::create();
  const Tensor x = test::random_tensor(*memory, {700, 129}, DType::bf16, 1);
  const Tensor weight = test::random_tensor(*memory, {129}, DType::bf16, 2);
  std::vector<Tensor> first;
  for (const int64_t blocks : {1, 5, 4096})
    for (const emulation::Order order : {0u, 1u, 3u}) {
      emulation::set_order(order);
      const Context context = make_context({.max_blocks = blocks});
      std::vector<Tensor> results;
      const auto keep = [&](const auto& op) {
        for (const Tensor& tensor : run_on(context, test::TypedOperation(op))) results.push_back(tensor);
      };
      const auto made = [&](Shape shape, DType dtype) {
        return Tensor::zeros(*memory, shape, dtype, Category::activations);
      };
      keep(SumRows{.x = x, .out = made({129}, DType::f32)});
      keep(SumSquares{.x = x, .out = made({1}, DType::f64)});
      keep(AbsMax{.x = x, .out = made({1}, DType::f32)});
      keep(RmsNorm{.x = x, .weight = weight, .y = made({700, 129}, DType::bf16), .rstd = made({700}, DType::f32)});
      keep(LayerNormBackward{.x = x,
                             .weight = weight,
                             .mean = made({700}, DType::f32),
                             .rstd = made({700}, DType::f32),
                             .dy = x,
                             .dx = made({700, 129}, DType::bf16),
                             .d_weight = made({129}, DType::f32),
                             .d_bias = made({129}, DType::f32)});
      if (first.empty()) first = results;
      for (size_t i = 0; i < results.size(); ++i) expect_same_bits(results[i], first[i]);
    }
  emulation::set_order(0);
}

TEST(CudaKernels, workspace_is_accounted_and_goes_back) {
  const Context context = make_context({.poison = true});
  const Tensor x = context.zeros({3, 70000}, DType::f32), out = context.empty({70000}, DType::f32);
  context.memory->ledger().reset_peaks();
  context.run(SumRows{.x = x, .out = out});
  EXPECT_EQ(context.memory->ledger().current(Category::workspace), 0);
  EXPECT_GE(context.memory->ledger().peak(Category::workspace), 70000 * 4);
  EXPECT_THAT(context.to_host<float>(out), ::testing::Each(0)) << "it was used before it went back";
}

TEST(CudaKernels, refuse_what_lies_elsewhere) {
  const Context context = make_context();
  const Tensor x = context.zeros({2}, DType::f32);
  const Tensor host = Tensor::zeros(*context.memory, {2}, DType::f32, Category::activations, Pool::host);
  EXPECT_EQ(message_of<DeviceError>([&] { context.run(AddTo{.x = host, .into = x}); }),
            "AddTo: x lies in the memory of the host");
  Stream stream;
  EXPECT_THAT(message_of<DeviceError>([&] { context.kernels->run(Scale{.x = x, .factor = 2}, stream); }),
              HasSubstr("Scale: the stream is one of the host, expected one of the device cuda:0"));
  EXPECT_THROW(context.run(AddTo{.x = context.zeros({3}, DType::f32), .into = x}), ShapeError);
}

}  // namespace
}  // namespace nought::cuda::kernels_test
