#include "nought/kernels/ops/loss.h"

#include "support/kernel_test.h"
#include "support/size.h"

namespace nought::loss_test {
namespace {

using namespace test;

class Loss : public KernelTest {
 protected:
  CrossEntropy make(int64_t rows, int64_t vocab, DType dtype, bool gradient) {
    Tensor targets = random_ids(*memory_, {rows}, vocab, 1);
    if (rows > 2) targets.data<int32_t>()[2] = -100;
    return {.logits = random({rows, vocab}, dtype, 2, 3),
            .targets = targets,
            .loss = empty({rows}, dtype == DType::f64 ? DType::f64 : DType::f32),
            .gradient = gradient,
            .gradient_scale = 0.25};
  }

  /// How far the gradient that an operation of f64 writes over its logits is from central differences of its losses.
  template <class Op>
  double error_of_gradient(const Op& op) {
    Op forward = op;
    forward.gradient = false, forward.logits = clone(op.logits);
    reference::run(op);
    const auto loss = [&] {
      reference::run(forward);
      double sum = 0;
      for (const double value : forward.loss.template span<double>()) sum += op.gradient_scale * value;
      return sum;
    };
    return gradient_error(forward.logits, op.logits, loss);
  }
};

TEST_F(Loss, of_equal_logits_is_the_log_of_the_vocabulary) {
  CrossEntropy op = make(4, 50, DType::f64, true);
  reference::run(Fill{.x = op.logits, .value = 1e4});  // large: exp() of it would overflow
  reference::run(op);
  for (int64_t i : {0, 1, 3}) EXPECT_NEAR(op.loss.data<double>()[i], std::log(50.0), 1e-12);
  EXPECT_EQ(op.loss.data<double>()[2], 0);
  EXPECT_EQ(dot(op.logits.slice(2, 3), op.logits.slice(2, 3)), 0);
}

NOUGHT_SIZE(medium);
TEST_F(Loss, and_its_gradient_are_rounded_once) {
  for_each_instruction_set([&] {
    for (DType dtype : kCpuDTypes) {
      for (bool gradient : {false, true}) {
        for (int64_t rows : {1, 3, 17}) {
          for (int64_t vocab : {1, 3, 7, 17, 31, 33, 64, 100, 257, 1003, 5003}) {
            CrossEntropy op = make(rows, vocab, dtype, gradient), expected = op;
            expected.logits = wide(op.logits), expected.loss = empty({rows}, DType::f64);
            run(op);
            reference::run(expected);
            expect_close(op.loss, expected.loss, 1e-6, 2e-6);
            expect_rounded(op.logits, expected.logits, 2e-7);
          }
        }
      }
    }
  });
}

TEST_F(Loss, gradient_matches_central_differences) {
  EXPECT_LE(error_of_gradient(make(5, 11, DType::f64, true)), 1e-6);
}

TEST_F(Loss, weights_of_one_change_no_bit) {
  for_each_instruction_set([&] {
    for (DType dtype : kCpuDTypes)
      for (bool gradient : {false, true}) {
        CrossEntropy plain = make(17, 257, dtype, gradient), weighted = make(17, 257, dtype, gradient);
        copy(plain.logits, weighted.logits);
        weighted.weights = empty({17}, DType::f32);
        run(Fill{.x = weighted.weights, .value = 1});
        run(plain), run(weighted);
        expect_same_bits(weighted.loss, plain.loss);
        expect_same_bits(weighted.logits, plain.logits);
      }
  });
}

TEST_F(Loss, each_weight_multiplies_its_loss_and_its_gradient) {
  const std::vector<float> weights{0.5f, -2, 3, 1.25f, 0.1f};  // the third is an ignored target's
  for_each_instruction_set([&] {
    for (DType dtype : kCpuDTypes) {
      CrossEntropy op = make(5, 100, dtype, true), expected = op;
      expected.logits = wide(op.logits), expected.loss = empty({5}, DType::f64);
      op.weights = of<float>(weights);
      run(op);
      for (int64_t row = 0; row < 5; ++row) {
        CrossEntropy one = expected;
        one.logits = expected.logits.slice(row, row + 1), one.targets = expected.targets.flat(row, row + 1);
        one.loss = expected.loss.flat(row, row + 1);
        one.gradient_scale = 0.25 * double{weights[static_cast<size_t>(row)]};
        reference::run(one);
        one.loss.data<double>()[0] *= double{weights[static_cast<size_t>(row)]};
      }
      expect_close(op.loss, expected.loss, 1e-6, 4e-6);
      expect_rounded(op.logits, expected.logits, 4e-7);
    }
  });
}

TEST_F(Loss, a_weight_of_zero_is_an_ignored_target) {
  for_each_instruction_set([&] {
    for (DType dtype : kCpuDTypes) {
      CrossEntropy masked = make(4, 50, dtype, true), weighted = make(4, 50, dtype, true);
      copy(masked.logits, weighted.logits);
      weighted.weights = of<float>({1, 0, 1, 1});
      // Also where the logits are not finite: 0 times them would be NaN.
      for (const Tensor& logits : {masked.logits, weighted.logits})
        copy(converted(*memory_, of<float>({std::nanf("")}), dtype), logits.flat(50 + 7, 50 + 8));
      masked.targets.data<int32_t>()[1] = -100;
      run(masked), run(weighted);
      expect_same_bits(weighted.loss, masked.loss);
      expect_same_bits(weighted.logits, masked.logits);
    }
  });
}

TEST_F(Loss, as_many_weights_as_targets_are_expected) {
  CrossEntropy op = make(5, 40, DType::f32, true);
  op.weights = empty({4}, DType::f32);
  EXPECT_THROW(run(op), Error);
  op.weights = empty({5}, DType::bf16);
  EXPECT_THROW(reference::run(op), Error);
}

TEST_F(Loss, survives_huge_logits_and_keeps_nan) {
  for_each_instruction_set([&] {
    for (DType dtype : kCpuDTypes) {
      CrossEntropy op = make(2, 40, dtype, true);
      Tensor large = converted(*memory_, of<float>({3e4f}), dtype);
      copy(large, op.logits.flat(7, 8));
      op.targets.data<int32_t>()[0] = 7;
      copy(converted(*memory_, of<float>({std::nanf("")}), dtype), op.logits.flat(40 + 39, 40 + 40));
      run(op);
      EXPECT_EQ(op.loss.data<float>()[0], 0);
      EXPECT_EQ(dot(op.logits.slice(0, 1), op.logits.slice(0, 1)), 0);
      EXPECT_TRUE(std::isnan(op.loss.data<float>()[1]));
      EXPECT_TRUE(std::isnan(dot(op.logits.slice(1, 2), op.logits.slice(1, 2))));
    }
  });
}

TEST_F(Loss, of_logits_of_any_size_is_that_of_what_they_are_less_than_the_largest) {
  for_each_instruction_set([&] {
    for (DType dtype : kCpuDTypes) {
      for (const double offset : {-3e3, -200.0, -64.0, 63.0, 64.5, 90.0, 3e3}) {
        CrossEntropy op = make(5, 1003, dtype, true), expected = op;
        Tensor shifted = wide(op.logits);
        for (double& logit : shifted.span<double>()) logit += offset;
        op.logits = converted(*memory_, shifted, dtype);
        for (int64_t i = 500; i < 520; ++i)  // as where a mask was added
          copy(converted(*memory_, of<float>({-std::numeric_limits<float>::infinity()}), dtype),
               op.logits.flat(1003 + i, 1003 + i + 1));
        op.targets.data<int32_t>()[1] = 7;
        expected.logits = wide(op.logits), expected.loss = empty({5}, DType::f64);
        run(op);
        reference::run(expected);
        expect_close(op.loss, expected.loss, 1e-6, 2e-6);
        expect_rounded(op.logits, expected.logits, 2e-7);
      }
    }
  });
}

TEST_F(Loss, of_a_sure_target_is_not_negative_and_has_its_own_digits) {
  for_each_instruction_set([&] {
    for (DType dtype : kCpuDTypes) {
      for (const float logit : {20.0f, 40.0f, 100.0f}) {
        CrossEntropy op = make(1, 40, dtype, false), expected = op;
        op.targets.data<int32_t>()[0] = 7;
        copy(converted(*memory_, of<float>({logit}), dtype), op.logits.flat(7, 8));
        expected.logits = wide(op.logits), expected.loss = empty({1}, DType::f64);
        run(op);
        reference::run(expected);
        EXPECT_GE(op.loss.data<float>()[0], 0);
        EXPECT_NEAR(op.loss.data<float>()[0], expected.loss.data<double>()[0], 2e-7);
      }
    }
  });
}

NOUGHT_SIZE(medium);
TEST_F(Loss, does_not_depend_on_the_number_of_threads) {
  Tensor first, first_loss;
  for (int threads : {1, 2, 4}) {
    ThreadCount guard(threads);
    CrossEntropy op = make(33, 2001, DType::bf16, true);
    run(op);
    if (!first) first = op.logits, first_loss = op.loss;
    expect_same_bits(op.logits, first);
    expect_same_bits(op.loss, first_loss);
  }
}

TEST_F(Loss, a_target_out_of_range_is_named_with_its_place) {
  for (int32_t bad : {40, -1}) {
    CrossEntropy op = make(5, 40, DType::f32, true);
    Tensor before = clone(op.logits);
    op.targets.data<int32_t>()[3] = bad;
    try {
      run(op);
      FAIL() << "target " << bad << " was accepted";
    } catch (const Error& error) {
      EXPECT_STREQ(error.what(), fmt::format("CrossEntropy: target {} at position 3 is neither in [0, 40) nor the "
                                             "ignored -100",
                                             bad)
                                     .c_str());
    }
    expect_same_bits(op.logits, before);
    EXPECT_THROW(reference::run(op), Error);
  }
}

// --- the divergence from a teacher ---

class Divergence : public Loss {
 protected:
  JensenShannon make_divergence(int64_t rows, int64_t vocab, DType dtype, double beta) {
    Tensor targets = random_ids(*memory_, {rows}, vocab, 1);
    if (rows > 2) targets.data<int32_t>()[2] = -100;
    return {.logits = random({rows, vocab}, dtype, 2, 3),
            .teacher = random({rows, vocab}, dtype, 3, 3),
            .targets = targets,
            .loss = empty({rows}, dtype == DType::f64 ? DType::f64 : DType::f32),
            .beta = beta,
            .gradient = true,
            .gradient_scale = 0.25};
  }
};

TEST_F(Divergence, and_its_gradient_are_those_of_the_reference) {
  for_each_instruction_set([&] {
    for (const DType dtype : kCpuDTypes)
      for (const double beta : {0.0, 0.3, 0.5, 1.0})
        for (const int64_t vocab : {1, 7, 33, 257}) {
          JensenShannon op = make_divergence(5, vocab, dtype, beta), expected = op;
          expected.logits = wide(op.logits), expected.teacher = wide(op.teacher),
          expected.loss = empty({5}, DType::f64);
          JensenShannon forward = op;
          forward.logits = clone(op.logits), forward.loss = empty({5}, DType::f32), forward.gradient = false;
          run(op), run(forward);
          reference::run(expected);
          expect_close(op.loss, expected.loss, 4e-6, 4e-6);
          expect_rounded(op.logits, expected.logits, 2e-6);
          expect_same_bits(forward.loss, op.loss);
        }
  });
}

TEST_F(Divergence, has_a_gradient_that_matches_central_differences) {
  for (const double beta : {0.0, 0.3, 1.0}) {
    const JensenShannon op = make_divergence(5, 11, DType::f64, beta);
    EXPECT_LE(error_of_gradient(op), 1e-6);
    EXPECT_EQ(op.loss.data<double>()[2], 0);  // an ignored target
  }
}

TEST_F(Divergence, from_a_teacher_that_says_the_same_is_zero) {
  for (const double beta : {0.0, 0.5, 1.0}) {
    JensenShannon op = make_divergence(4, 50, DType::f32, beta);
    copy(op.logits, op.teacher);
    run(op);
    for (const float loss : op.loss.span<float>()) EXPECT_NEAR(loss, 0, 1e-6);
    for (const float slope : op.logits.span<float>()) EXPECT_NEAR(slope, 0, 1e-7);
  }
}

TEST_F(Divergence, compares_rows_of_one_vocabulary) {
  JensenShannon op = make_divergence(3, 8, DType::f32, 0.5);
  op.teacher = random({3, 9}, DType::f32, 1, 1);
  EXPECT_THROW(run(op), Error);
  op = make_divergence(3, 8, DType::f32, 1.5);
  EXPECT_THROW(run(op), Error);
}

}  // namespace
}  // namespace nought::loss_test
