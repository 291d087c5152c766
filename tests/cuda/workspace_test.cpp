// The workspace that is planned for operations is what they ask for on the device.
#include "nought/cuda/workspace.h"

#include <map>

#include "support/planned_products.h"
#include "support/typed_operation_samples.h"
#include <gtest/gtest.h>

#include "nought/cuda/backend/kernels.h"

namespace nought::workspace_test {
namespace {

class CudaWorkspace : public test::KernelTest {
 protected:
  /// Runs the operation on copies of its operands on the device. Those at the end of a longer tensor lie at addresses
  /// that are no multiple of 16.
  template <class Op>
  void expect_as_planned(const Op& op, bool oddly = false) {
    SCOPED_TRACE(operation_name(op));
    Op there = op;
    std::map<const std::byte*, Tensor> placed;
    for_each_operand(there, [&](const Operand& operand) {
      const Tensor own = operand.tensor;
      if (!own) return;
      Tensor& copied = placed[own.raw()];
      if (!copied) {
        const Tensor room = device_.empty({own.numel() + 1}, own.dtype());
        copied = room.flat(oddly ? 1 : 0, own.numel() + (oddly ? 1 : 0)).reshape(own.shape());
        upload_bytes({own.raw(), static_cast<size_t>(own.bytes())}, copied, *device_.stream);
      }
      const_cast<Tensor&>(operand.tensor) = copied;  // `there` is not const
    });
    MemoryLedger& ledger = device_.memory->ledger();
    ledger.reset_peaks();
    device_.run(there);
    const int64_t taken = ledger.peak(Category::workspace) - ledger.current(Category::workspace);
    for_each_operand(there,
                     [](const Operand& operand) { const_cast<Tensor&>(operand.tensor) = operand.tensor.in_flight(); });
    int64_t planned = 0;
    for (const int64_t bytes : cuda::workspace_of(there, test::planned_products()))
      planned += round_up(bytes, static_cast<int64_t>(cuda::kDeviceAlignment));
    EXPECT_EQ(taken, planned);
    asked_ += planned > 0;
  }

  int asked_ = 0;  // operations that took some
  Context device_ = cuda::make_context({.poison = true});
};

TEST_F(CudaWorkspace, of_every_operation_is_what_is_planned) {
  test::for_each_typed_sample(*memory_, [&](const auto& op) { expect_as_planned(op); });
  EXPECT_GE(asked_, 9);
}

TEST_F(CudaWorkspace, of_products_is_what_is_planned_wherever_operands_lie) {
  for (const bool oddly : {false, true})
    for (const int64_t k : {0, 5, 900}) {  // the sum of the last is split
      const Tensor a = random({3, k}, DType::f32, 1), b = random({k, 4}, DType::f32, 2),
                   c = random({3, 4}, DType::f32, 3);
      const Tensor bias = random({4}, DType::f32, 4);
      expect_as_planned(MatMul{.a = a, .b = b, .c = c}, oddly);
      expect_as_planned(MatMul{.a = a, .b = b, .c = c, .bias = bias, .accumulate = true}, oddly);
    }
  EXPECT_GE(asked_, 8);
}

TEST_F(CudaWorkspace, of_attention_over_spans_is_what_is_planned) {
  const int64_t tokens = 9, heads = 2, dim = 4;
  const auto rows = [&](uint64_t seed) {
    return Heads{.base = random({tokens, heads * dim}, DType::f32, seed), .token_stride = heads * dim};
  };
  AttentionShape shape{
      .batch = 1, .q_length = 5, .k_length = 5, .num_heads = heads, .num_kv_heads = heads, .head_dim = dim};
  shape.spans = {{.q_begin = 0, .q_length = 4, .k_begin = 0, .k_length = 4},
                 {.q_begin = 4, .q_length = 5, .k_begin = 4, .k_length = 5}};
  const Tensor out = random({tokens, heads * dim}, DType::f32, 4), lse = random({heads * tokens}, DType::f32, 5);
  expect_as_planned(Attention{.shape = shape, .q = rows(1), .k = rows(2), .v = rows(3), .out = out, .lse = lse});
  expect_as_planned(AttentionBackward{.shape = shape,
                                      .q = rows(1),
                                      .k = rows(2),
                                      .v = rows(3),
                                      .out = out,
                                      .lse = lse,
                                      .d_out = random({tokens, heads * dim}, DType::f32, 6),
                                      .dq = rows(7),
                                      .dk = rows(8),
                                      .dv = rows(9)});
  EXPECT_EQ(asked_, 2);
}

TEST_F(CudaWorkspace, of_large_sums_is_what_is_planned) {
  const Tensor x = random({300, 5}, DType::bf16, 1), sums = random({5}, DType::bf16, 2);
  expect_as_planned(SumRows{.x = x, .out = sums});
  const Tensor many = random({65536 + 3}, DType::f32, 3), square = random({1}, DType::f64, 4);
  expect_as_planned(SumSquares{.x = many, .out = square});
  EXPECT_EQ(asked_, 2);
}

}  // namespace
}  // namespace nought::workspace_test
