// Attention on the device, beyond what tests/kernels holds of every backend: heads of all sizes, operands at any
// address, no wait of the host, workspace.
#include <algorithm>
#include <cmath>
#include <thread>

#include "support/kernel_test.h"
#include <gtest/gtest.h>

#include "nought/cuda/backend/kernels.h"

namespace nought::cuda::attention_test {
namespace {

using namespace test;

/// Self-attention of one sequence, with each operand in a tensor of its own.
struct Sequence {
  AttentionShape shape;
  Tensor q, k, v, out, lse, d_out, dq, dk, dv;
  int64_t offset;  // of the heads in their tensors

  Sequence(Memory& memory, const AttentionShape& s, DType dtype, int64_t offset_of_heads = 0)
      : shape(s), offset(offset_of_heads) {
    uint64_t seed = 0;
    const int64_t tokens = s.q_tokens();
    const auto rows = [&](int64_t width) {
      const Tensor x = random_tensor(memory, {tokens * width}, dtype, ++seed);
      if (offset == 0) return x;
      const Tensor moved = Tensor::zeros(memory, {tokens * width + offset}, dtype, Category::activations);
      copy(x, moved.flat(offset, moved.numel()));
      return moved;
    };
    q = rows(s.num_heads * s.head_dim), dq = rows(s.num_heads * s.head_dim);
    k = rows(s.num_kv_heads * s.head_dim), dk = rows(s.num_kv_heads * s.head_dim);
    v = rows(s.num_kv_heads * s.value_dim()), dv = rows(s.num_kv_heads * s.value_dim());
    out = random_tensor(memory, {tokens, s.num_heads * s.value_dim()}, dtype, ++seed);
    d_out = random_tensor(memory, out.shape(), dtype, ++seed);
    lse = random_tensor(memory, {s.num_heads * tokens}, statistics_dtype(dtype), ++seed);
  }
  Heads heads(const Tensor& x) const { return {x, offset, (x.numel() - offset) / shape.q_tokens()}; }
  Attention forward() const { return {shape, heads(q), heads(k), heads(v), out, lse}; }
  AttentionBackward backward() const {
    return {.shape = shape,
            .q = heads(q),
            .k = heads(k),
            .v = heads(v),
            .out = out,
            .lse = lse,
            .d_out = d_out,
            .dq = heads(dq),
            .dk = heads(dk),
            .dv = heads(dv)};
  }
  Sequence exact(Memory& memory) const {
    Sequence copy = *this;
    for (Tensor* x : {&copy.q, &copy.k, &copy.v, &copy.out, &copy.lse, &copy.d_out, &copy.dq, &copy.dk, &copy.dv})
      *x = converted(memory, *x, DType::f64);
    return copy;
  }
};

AttentionShape of_length(int64_t length, int64_t head_dim, int64_t value_dim, int64_t heads = 1) {
  return {.batch = 1,
          .q_length = length,
          .k_length = length,
          .num_heads = heads,
          .num_kv_heads = 1,
          .head_dim = head_dim,
          .scale = 1 / std::sqrt(static_cast<double>(head_dim)),
          .v_head_dim = value_dim};
}

class CudaAttention : public KernelTest {
 protected:
  /// Both passes against those of f64.
  void expect_exact(const AttentionShape& shape, DType dtype) {
    const auto largest = [](const Tensor& x) {
      double found = 1;
      for (const double value : x.to_vector<double>()) found = std::max(found, std::abs(value));
      return found;
    };
    const Sequence ours(*memory_, shape, dtype);
    Sequence exact = ours.exact(*memory_);
    run(ours.forward());
    reference::run(exact.forward());
    const bool rounds = dtype == DType::bf16 || dtype == DType::f16;
    expect_rounded(ours.out, exact.out, rounds ? unit_roundoff(dtype) / 2 * largest(exact.v) : 1e-5);
    expect_close(ours.lse, exact.lse, 1e-5, 1e-5);
    exact.out = wide(ours.out);
    run(ours.backward());
    reference::run(exact.backward());
    const double noise =
        (rounds ? unit_roundoff(dtype) : 1e-5) * std::max({largest(exact.dq), largest(exact.dk), largest(exact.dv)});
    expect_rounded(ours.dq, exact.dq, noise);
    expect_rounded(ours.dk, exact.dk, noise);
    expect_rounded(ours.dv, exact.dv, noise);
  }
};

TEST_F(CudaAttention, heads_of_all_sizes_agree_with_exact_attention) {
  constexpr struct {
    DType dtype;
    int64_t head_dim, value_dim;
  } kCases[] = {{DType::bf16, 256, 256},
                {DType::f16, 96, 64},
                {DType::bf16, 40, 144},
                {DType::f32, 256, 200},
                {DType::f64, 80, 96}};
  for (const auto& [dtype, head_dim, value_dim] : kCases) {
    SCOPED_TRACE(fmt::format("{} {} {}", name_of(dtype), head_dim, value_dim));
    expect_exact(of_length(37, head_dim, value_dim), dtype);
  }
}

TEST_F(CudaAttention, windows_without_a_causal_mask_reach_to_both_sides) {
  for (const DType dtype : {DType::bf16, DType::f32})
    for (const int64_t window : {9, 70}) {
      SCOPED_TRACE(fmt::format("{} window {}", name_of(dtype), window));
      AttentionShape shape = of_length(150, 16, 16);
      shape.causal = false, shape.window = window;
      expect_exact(shape, dtype);
    }
}

TEST_F(CudaAttention, operands_at_odd_addresses_give_the_same_bits) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const Sequence even(*memory_, of_length(70, 24, 16, 2), dtype), odd(*memory_, even.shape, dtype, 3);
    for (const Sequence* each : {&even, &odd}) run(each->forward()), run(each->backward());
    expect_same_bits(odd.out, even.out);
    expect_same_bits(odd.lse, even.lse);
    const auto moved = [](const Tensor& x) { return x.flat(3, x.numel()); };
    expect_same_bits(moved(odd.dq), even.dq);
    expect_same_bits(moved(odd.dk), even.dk);
    expect_same_bits(moved(odd.dv), even.dv);
  }
}

/// Runs an operation of host tensors on copies of them.
template <class Op>
void run_there(const Context& context, Op op) {
  for_each_operand(op, [&](const Operand& operand) {
    const Tensor own = operand.tensor;
    if (!own) return;
    const Tensor copied = context.empty(own.shape(), own.dtype());
    upload_bytes({own.raw(), static_cast<size_t>(own.bytes())}, copied, *context.stream);
    const_cast<Tensor&>(operand.tensor) = copied;  // the copy is not const
  });
  context.memory->ledger().reset_peaks();
  context.run(op);
}

TEST_F(CudaAttention, enqueues_and_lets_the_host_go_on) {
  const Context context = make_context({.poison = true});
  AttentionShape shape = of_length(0, 16, 16);
  shape.spans = {{0, 5, 0, 5}, {5, 9, 5, 9}};
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Sequence packed(*memory_, shape, dtype);
    const int64_t waits = context.stream->waits_of(std::this_thread::get_id());
    run_there(context, packed.forward());
    EXPECT_GT(context.memory->ledger().peak(Category::workspace), 0) << "where sequences lie";
    run_there(context, packed.backward());
    EXPECT_GE(context.memory->ledger().peak(Category::workspace), 14 * 4) << "a sum for each query";
    EXPECT_EQ(context.memory->ledger().current(Category::workspace), 0);
    EXPECT_EQ(context.stream->waits_of(std::this_thread::get_id()), waits);
  }
  EXPECT_EQ(dynamic_cast<const CudaKernels&>(*context.kernels).runs_on_host(), 0);
}

TEST_F(CudaAttention, heads_that_are_too_large_run_on_the_host) {
  const Context context = make_context();
  const auto& kernels = dynamic_cast<const CudaKernels&>(*context.kernels);
  run_there(context, Sequence(*memory_, of_length(3, 257, 16), DType::f32).forward());
  EXPECT_EQ(kernels.runs_on_host(), 1);
  run_there(context, Sequence(*memory_, of_length(3, 256, 16), DType::f32).forward());
  EXPECT_EQ(kernels.runs_on_host(), 1);
}

}  // namespace
}  // namespace nought::cuda::attention_test
