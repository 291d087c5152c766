// Short causal convolutions: the CPU beside the reference, states, and gradients by central differences.
#include "nought/kernels/ops/short_conv.h"

#include "support/kernel_test.h"

namespace nought::short_conv_test {
namespace {

using namespace test;

/// Channels that are no whole vectors, of more than a task; taps that the shortest span has not.
constexpr int64_t kTokens = 13, kChannels = 69;
const std::vector<StateSpan> kSpans{{0, 7}, {7, 1}, {8, 5}};

class ShortConvs : public KernelTest {
 protected:
  ShortConv make(bool gated, int64_t taps, bool biased, DType dtype, int64_t channels = kChannels) {
    return {.x = random({kTokens, (gated ? 3 : 1) * channels}, dtype, 1),
            .weight = random({channels, 1, taps}, dtype, 2),
            .y = random({kTokens, channels}, dtype, 3),
            .bias = biased ? random({channels}, dtype, 4) : Tensor{},
            .spans = kSpans,
            .gated = gated};
  }
  ShortConv widened(const ShortConv& op) {
    ShortConv copy = op;
    copy.x = wide(op.x), copy.weight = wide(op.weight), copy.y = wide(op.y);
    if (op.bias) copy.bias = wide(op.bias);
    if (op.states) copy.states = wide(op.states);
    return copy;
  }
  ShortConvBackward backward_of(const ShortConv& op, DType gradients, bool accumulate) {
    return {.x = op.x,
            .weight = op.weight,
            .dy = random(op.y.shape(), op.y.dtype(), 5),
            .dx = random(op.x.shape(), op.x.dtype(), 6),
            .d_weight = random(op.weight.shape(), gradients, 7),
            .bias = op.bias,
            .d_bias = op.bias ? random(op.bias.shape(), gradients, 8) : Tensor{},
            .spans = op.spans,
            .gated = op.gated,
            .accumulate_x = accumulate,
            .accumulate_weight = accumulate};
  }
  ShortConvBackward widened(const ShortConvBackward& op) {
    ShortConvBackward copy = op;
    for (Tensor* each : {&copy.x, &copy.weight, &copy.dy, &copy.dx, &copy.d_weight, &copy.bias, &copy.d_bias})
      if (*each) *each = wide(*each);
    return copy;
  }
};

TEST_F(ShortConvs, are_those_of_the_reference_in_every_dtype) {
  for_each_instruction_set([&] {
    for (const DType dtype : kCpuDTypes)
      for (const bool gated : {false, true})
        for (const int64_t taps : {1, 4}) {
          ShortConv op = make(gated, taps, /*biased=*/taps == 4, dtype);
          op.states = random({4, taps - 1, kChannels}, dtype, 9);
          op.spans = {{0, 7, 2, true}, {7, 1, 0, true}, {8, 5, 3, false}};
          const ShortConv expected = widened(op);
          run(op), reference::run(expected);
          expect_rounded(op.y, expected.y, 4e-5);
          expect_rounded(op.states, expected.states, 1e-5);
        }
  });
}

TEST_F(ShortConvs, gradients_are_those_of_the_reference_in_every_dtype) {
  for_each_instruction_set([&] {
    for (const DType dtype : kCpuDTypes)
      for (const bool gated : {false, true})
        for (const bool accumulate : {false, true}) {
          const ShortConvBackward op =
              backward_of(make(gated, 3, /*biased=*/accumulate, dtype), accumulate ? DType::f32 : dtype, accumulate);
          const ShortConvBackward expected = widened(op);
          run(op), reference::run(expected);
          expect_rounded(op.dx, expected.dx, 4e-5);
          expect_rounded(op.d_weight, expected.d_weight, 2e-4);
          if (op.d_bias) expect_rounded(op.d_bias, expected.d_bias, 2e-4);
        }
  });
}

TEST_F(ShortConvs, gradients_are_central_differences) {
  for (const bool gated : {false, true}) {
    const ShortConv op = make(gated, 3, /*biased=*/true, DType::f64, 2);
    const ShortConvBackward back = backward_of(op, DType::f64, /*accumulate=*/false);
    run(back);
    const auto loss = [&] {
      run(op);
      return dot(op.y, back.dy);
    };
    EXPECT_LE(gradient_error(op.x, back.dx, loss), 1e-8);
    EXPECT_LE(gradient_error(op.weight, back.d_weight, loss), 1e-8);
    EXPECT_LE(gradient_error(op.bias, back.d_bias, loss), 1e-8);
  }
}

/// Piece by piece, a piece shorter than the taps too, with the state of another sequence between.
TEST_F(ShortConvs, a_sequence_goes_on_from_its_state_with_the_same_bits) {
  for (const bool gated : {false, true}) {
    ShortConv whole = make(gated, 4, /*biased=*/true, DType::f32);
    whole.spans = {{0, kTokens}};
    run(whole);
    const Tensor states = random({2, 3, kChannels}, DType::f32, 9), other = clone(states.slice(0, 1));
    const Tensor y = empty(whole.y.shape(), DType::f32);
    for (const Interval piece : {Interval{0, 5}, Interval{5, 6}, Interval{6, 8}, Interval{8, kTokens}}) {
      ShortConv op = whole;
      op.x = whole.x.slice(piece.begin, piece.end), op.y = y.slice(piece.begin, piece.end);
      op.spans = {{0, piece.size(), 1, piece.begin > 0}};
      op.states = states;
      run(op);
    }
    expect_same_bits(y, whole.y);
    expect_same_bits(states.slice(0, 1), other);
  }
}

TEST_F(ShortConvs, tokens_of_another_span_do_not_count) {
  ShortConv op = make(/*gated=*/true, 4, /*biased=*/false, DType::f32);
  run(op);
  ShortConv alone = op;
  alone.x = op.x.slice(8, 13), alone.y = empty({5, kChannels}, DType::f32), alone.spans = {{0, 5}};
  run(alone);
  expect_same_bits(op.y.slice(8, 13), alone.y);
}

TEST_F(ShortConvs, spans_that_leave_tokens_out_and_states_that_are_not_there_are_refused) {
  ShortConv op = make(true, 3, false, DType::f32);
  op.spans = {{0, 7}, {8, 5}};
  EXPECT_THROW(run(op), ShapeError);
  op.spans = {{0, kTokens, 0, true}};
  EXPECT_THROW(run(op), ShapeError) << "there are no states";
  op.spans = {{0, kTokens, 2, true}};
  op.states = random({2, 2, kChannels}, DType::f32, 1);
  EXPECT_THROW(run(op), ShapeError);
  EXPECT_THROW(run(make(true, kMostTaps + 1, false, DType::f32)), ShapeError);
}

}  // namespace
}  // namespace nought::short_conv_test
