#include "nought/kernels/ops/norms.h"

#include "support/kernel_test.h"
#include "support/size.h"

namespace nought::norms_test {
namespace {

using namespace test;

const std::vector<int64_t> kRows{1, 3, 17, 33}, kColumns{1, 7, 31, 33, 64, 257};

/// The operands of both norms and of their gradients; x is shifted, so that a mean matters.
struct Case {
  Tensor x, weight, bias, dy, y, dx, mean, rstd, d_weight, d_bias;
};

class Norms : public KernelTest {
 protected:
  Case make(int64_t rows, int64_t n, DType dtype, DType gradient_dtype) {
    Tensor x = random({rows, n}, dtype, 1), shift = empty({rows, n}, dtype);
    run(Fill{.x = shift, .value = 0.7});
    run(Add{.a = x, .b = shift, .out = x});
    const DType statistics = dtype == DType::f64 ? DType::f64 : DType::f32;
    return {.x = x,
            .weight = random({n}, dtype, 2),
            .bias = random({n}, dtype, 3),
            .dy = random({rows, n}, dtype, 4),
            .y = empty({rows, n}, dtype),
            .dx = random({rows, n}, dtype, 5),
            .mean = empty({rows}, statistics),
            .rstd = empty({rows}, statistics),
            .d_weight = random({n}, gradient_dtype, 6),
            .d_bias = random({n}, gradient_dtype, 7)};
  }
  Case widened(const Case& c) {
    return {wide(c.x),  wide(c.weight), wide(c.bias), wide(c.dy),       wide(c.y),
            wide(c.dx), wide(c.mean),   wide(c.rstd), wide(c.d_weight), wide(c.d_bias)};
  }
};

RmsNorm rms_norm(const Case& c, double offset = 0) {
  return {.x = c.x, .weight = c.weight, .y = c.y, .rstd = c.rstd, .eps = 1e-3, .weight_offset = offset};
}
RmsNormBackward rms_norm_backward(const Case& c, double offset, bool accumulate_x, bool accumulate_weight) {
  return {.x = c.x,
          .weight = c.weight,
          .rstd = c.rstd,
          .dy = c.dy,
          .dx = c.dx,
          .d_weight = c.d_weight,
          .weight_offset = offset,
          .accumulate_x = accumulate_x,
          .accumulate_weight = accumulate_weight};
}
LayerNorm layer_norm(const Case& c) {
  return {.x = c.x, .weight = c.weight, .bias = c.bias, .y = c.y, .mean = c.mean, .rstd = c.rstd, .eps = 1e-3};
}
LayerNormBackward layer_norm_backward(const Case& c, bool accumulate_x, bool accumulate_weight) {
  return {.x = c.x,
          .weight = c.weight,
          .mean = c.mean,
          .rstd = c.rstd,
          .dy = c.dy,
          .dx = c.dx,
          .d_weight = c.d_weight,
          .d_bias = c.d_bias,
          .accumulate_x = accumulate_x,
          .accumulate_weight = accumulate_weight};
}

TEST_F(Norms, rms_norm_has_unit_mean_square_before_the_weight) {
  Case c = make(3, 100, DType::f64, DType::f64);
  reference::run(Fill{.x = c.weight, .value = 0});
  reference::run(RmsNorm{.x = c.x, .weight = c.weight, .y = c.y, .rstd = c.rstd, .eps = 0, .weight_offset = 1});
  for (int64_t row = 0; row < 3; ++row) EXPECT_NEAR(dot(c.y.slice(row, row + 1), c.y.slice(row, row + 1)), 100, 1e-10);
}

TEST_F(Norms, layer_norm_has_mean_bias_and_unit_variance) {
  Case c = make(3, 100, DType::f64, DType::f64);
  reference::run(Fill{.x = c.weight, .value = 1});
  reference::run(Fill{.x = c.bias, .value = 2});
  reference::run(
      LayerNorm{.x = c.x, .weight = c.weight, .bias = c.bias, .y = c.y, .mean = c.mean, .rstd = c.rstd, .eps = 0});
  Tensor ones = empty({100}, DType::f64);
  reference::run(Fill{.x = ones, .value = 1});
  for (int64_t row = 0; row < 3; ++row) {
    Tensor y = c.y.slice(row, row + 1);
    EXPECT_NEAR(dot(y, ones), 200, 1e-10);
    EXPECT_NEAR(dot(y, y), 500, 1e-10);  // 100 * (variance 1 + mean 2 squared)
  }
}

TEST_F(Norms, forward_is_rounded_once) {
  for_each_instruction_set([&] {
    for (DType dtype : kCpuDTypes) {
      for (int64_t rows : kRows) {
        for (int64_t n : kColumns) {
          Case c = make(rows, n, dtype, dtype), e = widened(c);
          run(rms_norm(c, 1));
          reference::run(rms_norm(e, 1));
          expect_close(c.rstd, e.rstd, 2e-6, 0);
          expect_rounded(c.y, e.y, 1e-5);
          run(layer_norm(c));
          reference::run(layer_norm(e));
          expect_close(c.mean, e.mean, 2e-6, 1e-6);
          expect_close(c.rstd, e.rstd, 2e-5, 0);
          expect_rounded(c.y, e.y, 4e-5);
        }
      }
    }
  });
}

NOUGHT_SIZE(medium);
TEST_F(Norms, backward_is_rounded_once_and_accumulates) {
  for_each_instruction_set([&] {
    int64_t turn = 0;
    for (DType dtype : kCpuDTypes) {
      for (int64_t rows : kRows) {
        for (int64_t n : kColumns) {
          for (int mode = 0; mode < 4; ++mode) {
            if (!takes_case(turn++, 5)) continue;
            const bool add_x = mode & 1, add_weight = mode & 2;
            Case c = make(rows, n, dtype, add_weight ? DType::f32 : dtype);
            run(rms_norm(c));
            Case e = widened(c);
            run(rms_norm_backward(c, 1, add_x, add_weight));
            reference::run(rms_norm_backward(e, 1, add_x, add_weight));
            expect_rounded(c.dx, e.dx, 4e-5);
            expect_rounded(c.d_weight, e.d_weight, 4e-5);
            c = make(rows, n, dtype, add_weight ? DType::f32 : dtype);
            run(layer_norm(c));
            e = widened(c);
            run(layer_norm_backward(c, add_x, add_weight));
            reference::run(layer_norm_backward(e, add_x, add_weight));
            expect_rounded(c.dx, e.dx, 4e-4);  // one column: rstd is 1 / sqrt(eps), about 30
            expect_rounded(c.d_weight, e.d_weight, 1e-4);
            expect_rounded(c.d_bias, e.d_bias, 1e-4);
          }
        }
      }
    }
  });
}

/// Columns [begin, end) of each row.
Tensor columns_of(const Tensor& x, int64_t begin, int64_t end, const Tensor& into) {
  reference::run(CopyHeads{.from = {x, begin, x.dim(-1)},
                           .to = {into, 0, end - begin},
                           .tokens = x.rows(),
                           .num_heads = 1,
                           .head_dim = end - begin});
  return into;
}

TEST_F(Norms, parts_of_rows_whose_sums_are_added_are_normalised_as_whole_rows) {
  const int64_t rows = 17, n = 96, cut = 33;
  for_each_instruction_set([&] {
    for (const DType dtype : kCpuDTypes) {
      const Case whole = make(rows, n, dtype, DType::f32), exact = widened(whole);
      reference::run(rms_norm(exact, 1));
      reference::run(rms_norm_backward(exact, 1, false, false));
      const auto part = [&](const Tensor& x, Interval of) {
        return columns_of(x.rank() == 1 ? x.reshape({1, x.numel()}) : x, of.begin, of.end,
                          empty({x.rank() == 1 ? 1 : rows, of.size()}, x.dtype()));
      };
      const auto flat = [&](const Tensor& x) { return x.reshape({x.numel()}); };
      const Tensor squares = empty({rows}, DType::f32), products = empty({rows}, DType::f32);
      for (const Interval of : {Interval{0, cut}, Interval{cut, n}}) {
        const Tensor x = part(whole.x, of), dy = part(whole.dy, of), weight = flat(part(whole.weight, of));
        run(DotRows{.a = x, .b = x, .out = squares, .accumulate = of.begin > 0});
        run(DotRows{
            .a = dy, .b = x, .out = products, .accumulate = of.begin > 0, .factors = weight, .factor_offset = 1});
      }
      for (const Interval of : {Interval{0, cut}, Interval{cut, n}}) {
        const Tensor x = part(whole.x, of), dy = part(whole.dy, of), weight = flat(part(whole.weight, of));
        const Tensor y = empty(x.shape(), dtype), dx = empty(x.shape(), dtype);
        const Tensor rstd = empty({rows}, DType::f32), d_weight = empty({of.size()}, DType::f32);
        run(RmsNorm{.x = x,
                    .weight = weight,
                    .y = y,
                    .rstd = rstd,
                    .eps = 1e-3,
                    .weight_offset = 1,
                    .squares = squares,
                    .width = n});
        run(RmsNormBackward{.x = x,
                            .weight = weight,
                            .rstd = rstd,
                            .dy = dy,
                            .dx = dx,
                            .d_weight = d_weight,
                            .weight_offset = 1,
                            .products = products,
                            .width = n});
        expect_close(rstd, exact.rstd, 2e-6, 0);
        expect_rounded(y, part(exact.y, of), 1e-5);
        expect_rounded(dx, part(exact.dx, of), 4e-5);
        expect_rounded(d_weight, flat(part(exact.d_weight, of)), 4e-5);
      }
    }
  });
}

TEST_F(Norms, rms_norm_gradients_match_central_differences) {
  Case c = make(5, 9, DType::f64, DType::f64);
  reference::run(rms_norm(c, 0.5));
  reference::run(rms_norm_backward(c, 0.5, false, false));
  const auto loss = [&] {
    reference::run(rms_norm(c, 0.5));
    return dot(c.y, c.dy);
  };
  EXPECT_LE(gradient_error(c.x, c.dx, loss), 1e-6);
  EXPECT_LE(gradient_error(c.weight, c.d_weight, loss), 1e-6);
}

TEST_F(Norms, layer_norm_gradients_match_central_differences) {
  Case c = make(5, 9, DType::f64, DType::f64);
  reference::run(layer_norm(c));
  reference::run(layer_norm_backward(c, false, false));
  const auto loss = [&] {
    reference::run(layer_norm(c));
    return dot(c.y, c.dy);
  };
  EXPECT_LE(gradient_error(c.x, c.dx, loss), 1e-6);
  EXPECT_LE(gradient_error(c.weight, c.d_weight, loss), 1e-6);
  EXPECT_LE(gradient_error(c.bias, c.d_bias, loss), 1e-6);
}

NOUGHT_SIZE(medium);
TEST_F(Norms, do_not_depend_on_the_number_of_threads) {
  if (tested_backend() != "cpu") GTEST_SKIP() << "threads of the host do not compute";
  std::vector<Tensor> first;
  for (int threads : {1, 2, 4}) {
    ThreadCount guard(threads);
    Case layer = make(1003, 129, DType::bf16, DType::f32), rms = make(1003, 129, DType::bf16, DType::f32);
    run(layer_norm(layer));
    run(layer_norm_backward(layer, false, false));
    run(rms_norm(rms));
    run(rms_norm_backward(rms, 0, true, true));
    const std::vector<Tensor> results{layer.y, layer.dx, layer.d_weight, layer.d_bias, rms.y, rms.dx, rms.d_weight};
    if (first.empty()) first = results;
    for (size_t i = 0; i < results.size(); ++i) expect_same_bits(results[i], first[i]);
  }
}

TEST_F(Norms, tensors_that_do_not_fit_are_refused) {
  Case c = make(3, 8, DType::bf16, DType::bf16);
  c.rstd = empty({3}, DType::bf16);  // statistics are fp32
  EXPECT_THROW(run(rms_norm(c)), ShapeError);
  c.rstd = empty({4}, DType::f32);
  EXPECT_THROW(run(layer_norm(c)), ShapeError);
  EXPECT_THROW(reference::run(rms_norm_backward(c, 0, false, false)), ShapeError);
}

}  // namespace
}  // namespace nought::norms_test
