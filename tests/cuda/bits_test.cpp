// Operations on single elements have the bits of the CPU's kernels in fp32, where the CPU has fused multiply-add.
#include <map>

#include "support/kernel_test.h"
#include <gtest/gtest.h>

#include "nought/cuda/backend/kernels.h"
#include "nought/kernels/wire_records.h"

namespace nought::bits_test {
namespace {

using test::expect_same_bits;

class CudaBits : public test::KernelTest {
 protected:
  void SetUp() override {
    if ((hwy::SupportedTargets() & (HWY_AVX2 | HWY_AVX3)) == 0) GTEST_SKIP() << "a CPU without fused multiply-add";
  }

  /// Runs the operation on the device, and then on the CPU. Returns what it has written: in `op`, and on the device.
  template <class Op>
  std::vector<std::pair<Tensor, Tensor>> run_on_both(const Op& op) {
    Op there = op;
    std::map<const std::byte*, Tensor> placed;
    std::vector<std::pair<Tensor, Tensor>> written;
    for_each_operand(there, [&](const Operand& operand) {
      const Tensor own = operand.tensor;
      if (!own) return;
      Tensor& copied = placed[own.raw()];
      if (!copied) {
        copied = device_.empty(own.shape(), own.dtype());
        upload_bytes({own.raw(), static_cast<size_t>(own.bytes())}, copied, *device_.stream);
      }
      const_cast<Tensor&>(operand.tensor) = copied;  // `there` is not const
      if (operand.use.writes()) written.emplace_back(own, copied);
    });
    const auto& kernels = dynamic_cast<const cuda::CudaKernels&>(*device_.kernels);
    const int64_t before = kernels.runs_on_host();
    device_.run(there);
    EXPECT_EQ(kernels.runs_on_host(), before);
    cpu_.run(op);
    for (auto& [own, computed] : written) computed = device_.on_host(computed);
    return written;
  }
  template <class Op>
  void expect_bits_of_the_cpu(const Op& op) {
    SCOPED_TRACE(operation_name(op));
    for (const auto& [own, computed] : run_on_both(op)) expect_same_bits(computed, own);
  }
  Tensor wave(Shape shape, uint64_t seed, DType dtype = DType::f32) { return random(shape, dtype, seed, 3); }
  Tensor positive(int64_t n, uint64_t seed) {
    Tensor x = wave({n}, seed);
    for (float& each : x.span<float>()) each *= each;
    return x;
  }

  Tensor bytes(int64_t n) {
    const Tensor x = empty({n}, DType::u8);
    for (int64_t i = 0; i < n; ++i) x.data<uint8_t>()[i] = static_cast<uint8_t>(i * 37);
    return x;
  }

  static constexpr int64_t kCount = 1003;
  Context device_ = cuda::make_context({.poison = true}), cpu_{memory_, make_cpu_kernels()};
};

TEST_F(CudaBits, of_activations_are_those_of_the_cpu) {
  for (const DType dtype : {DType::f32, DType::f16})
    for (const Activation activation :
         {Activation::gelu_erf, Activation::gelu_tanh, Activation::silu, Activation::relu}) {
      SCOPED_TRACE(name_of(activation));
      const Tensor x = wave({kCount}, 1, dtype), dy = wave({kCount}, 2, dtype);
      expect_bits_of_the_cpu(Activate{x, empty({kCount}, dtype), activation});
      expect_bits_of_the_cpu(ActivateBackward{x, dy, empty({kCount}, dtype), activation});
      for (const int64_t n : {51, 64}) {
        const Tensor gate_up = wave({7, 2 * n}, 3, dtype), d = wave({7, n}, 4, dtype);
        expect_bits_of_the_cpu(GatedActivate{gate_up, empty({7, n}, dtype), activation});
        expect_bits_of_the_cpu(GatedActivateBackward{gate_up, d, empty({7, 2 * n}, dtype), activation});
      }
    }
  for (const DType dtype : test::kCpuDTypes) {
    const Tensor gate_up = random({9, 62}, dtype, 5, 6), d = wave({9, 31}, 6, dtype);
    expect_bits_of_the_cpu(ClampedSwiglu{gate_up, empty({9, 31}, dtype)});
    expect_bits_of_the_cpu(ClampedSwigluBackward{gate_up, d, empty({9, 62}, dtype)});
    expect_bits_of_the_cpu(Softcap{random({kCount}, dtype, 7, 40), 30});
    expect_bits_of_the_cpu(SoftcapBackward{wave({kCount}, 8, dtype), wave({kCount}, 9, dtype), 30});
    expect_bits_of_the_cpu(Clamp{random({kCount}, dtype, 7, 4), empty({kCount}, dtype), 2.5});
    expect_bits_of_the_cpu(
        ClampBackward{random({kCount}, dtype, 7, 4), wave({kCount}, 9, dtype), empty({kCount}, dtype), 2.5});
  }
}

TEST_F(CudaBits, of_updates_are_those_of_the_cpu) {
  for (const DType dtype : test::kCpuDTypes) {
    const DType narrow = dtype == DType::f16 ? DType::f16 : DType::bf16;
    const auto p = [&] { return wave({kCount}, 1); };
    const auto m = [&] { return wave({kCount}, 2); };
    const auto v = [&] { return positive(kCount, 3); };
    const Tensor g = wave({kCount}, 4, dtype);
    const auto copy = [&] { return empty({kCount}, narrow); };
    for (const bool decoupled : {false, true})
      expect_bits_of_the_cpu(Adam{.parameter = p(),
                                  .exp_avg = m(),
                                  .exp_avg_sq = v(),
                                  .gradient = g,
                                  .parameter_copy = copy(),
                                  .weight_decay = 0.1,
                                  .bias1 = 0.1,
                                  .bias2 = 0.001,
                                  .gradient_scale = 0.7,
                                  .decoupled_decay = decoupled});
    for (const bool nesterov : {false, true})
      expect_bits_of_the_cpu(Sgd{.parameter = p(),
                                 .momentum_buffer = m(),
                                 .gradient = g,
                                 .parameter_copy = copy(),
                                 .momentum = 0.9,
                                 .dampening = nesterov ? 0 : 0.1,
                                 .weight_decay = 0.01,
                                 .nesterov = nesterov});
    expect_bits_of_the_cpu(Adagrad{.parameter = p(), .sum = v(), .gradient = g, .parameter_copy = copy()});
    expect_bits_of_the_cpu(RmsProp{.parameter = p(), .square = v(), .gradient = g, .parameter_copy = copy()});
    expect_bits_of_the_cpu(
        Lion{.parameter = p(), .exp_avg = m(), .gradient = g, .parameter_copy = copy(), .weight_decay = 0.1});
    expect_bits_of_the_cpu(LambDirection{.parameter = p(),
                                         .exp_avg = m(),
                                         .exp_avg_sq = v(),
                                         .gradient = g,
                                         .direction = empty({kCount}, DType::f32),
                                         .weight_decay = 0.1});
    expect_bits_of_the_cpu(
        MomentumDirection{.momentum_buffer = m(), .gradient = g, .direction = empty({kCount}, DType::f32)});
    const std::vector<double> squares{3.5, 0.25};
    expect_bits_of_the_cpu(ApplyDirection{.parameter = p(),
                                          .direction = m(),
                                          .parameter_copy = copy(),
                                          .squares = Tensor::of<double>(*memory_, {2}, squares),
                                          .keep = 0.99});
  }
}

TEST_F(CudaBits, of_codes_and_rows_are_those_of_the_cpu) {
  for (const bool is_signed : {false, true}) {
    const Tensor x = is_signed ? wave({kCount}, 1) : positive(kCount, 1);
    const Tensor codes = empty({kCount}, DType::u8), scales = empty({4}, DType::f32);
    expect_bits_of_the_cpu(Quantize8{.x = x, .codes = codes, .scales = scales, .is_signed = is_signed});
    expect_bits_of_the_cpu(
        Dequantize8{.codes = codes, .scales = scales, .x = empty({kCount}, DType::f32), .is_signed = is_signed});
  }
  for (const DType dtype : test::kCpuDTypes) {
    const Tensor x = wave({8, 96}, 2, dtype), codes = empty({8, 96}, DType::i8), scales = empty({8, 3}, DType::f16);
    expect_bits_of_the_cpu(QuantizeBlocks{.x = x, .codes = codes, .scales = scales});
    expect_bits_of_the_cpu(DequantizeBlocks{.weight = Weight(codes, scales), .x = empty({8, 96}, dtype)});
    for (const CodeKind kind : {CodeKind::nf4, CodeKind::fp4}) {
      const Weight weight(kind, {6, 96}, bytes({288}), wave({9}, 11));
      expect_bits_of_the_cpu(DequantizeBlocks{.weight = weight, .x = empty({6, 96}, dtype)});
    }
    const Tensor flat = wave({kCount}, 3, dtype), mx = empty({kCount}, DType::u8), exponents = empty({32}, DType::u8);
    expect_bits_of_the_cpu(EncodeMxfp8{.x = flat, .codes = mx, .scales = exponents});
    if (dtype != DType::f16)
      expect_bits_of_the_cpu(DecodeMxfp8{.codes = mx, .scales = exponents, .x = empty({kCount}, dtype)});
    const Tensor index = test::random_ids(*memory_, {5, 3}, 8, 4);
    expect_bits_of_the_cpu(GatherRows{x, index.reshape({15}), empty({15, 96}, dtype)});
    expect_bits_of_the_cpu(CombineRows{x, index, empty({5, 96}, dtype), wave({5, 3}, 5)});
    expect_bits_of_the_cpu(ScaleRows{x, wave({8}, 6), empty({8, 96}, dtype)});
    const Tensor table = wave({40, 96}, 7, dtype), ids = test::random_ids(*memory_, {70}, 40, 8);
    expect_bits_of_the_cpu(Embedding{.table = table, .ids = ids, .out = empty({70, 96}, dtype)});
    expect_bits_of_the_cpu(EmbeddingBackward{
        .d_out = wave({70, 96}, 9, dtype), .ids = ids, .d_table = wave({40, 96}, 10), .accumulate = true});
  }
}

TEST_F(CudaBits, of_scales_that_are_codes_are_those_of_the_cpu) {
  expect_bits_of_the_cpu(
      DecodeScales{.codes = bytes({600}), .nested = wave({4}, 1), .scales = empty({600}, DType::f32)});
}

TEST_F(CudaBits, of_records_are_those_of_the_cpu) {
  constexpr int64_t kParts = 6;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64})
    for (const int bits : {4, 8, 16, 32})
      for (const int64_t numel : {8, 504, 1064}) {
        SCOPED_TRACE(fmt::format("{} elements of {} in {} bits", numel, name_of(dtype), bits));
        const Tensor records = empty({kParts * wire_record_bytes(numel, bits)}, DType::u8);
        const Tensor x = wave({kParts * numel}, 1, dtype);
        expect_bits_of_the_cpu(EncodeWire{.x = x, .records = records, .bits = bits, .parts = kParts});
        for (const double beta : {0.0, 0.8})
          expect_bits_of_the_cpu(EncodeWire{.x = x,
                                            .records = records,
                                            .error = wave({kParts * numel}, 2, dtype),
                                            .bits = bits,
                                            .parts = kParts,
                                            .hosts = 3,
                                            .beta = beta});
        expect_bits_of_the_cpu(
            DecodeWire{.records = records, .y = empty({2 * numel}, dtype), .bits = bits, .parts = 2, .terms = 3});
      }
}

/// Parts of a tensor may begin anywhere; records, where a caller has put them.
TEST_F(CudaBits, of_records_do_not_depend_on_where_they_lie) {
  constexpr int64_t kNumel = 1064;
  const Tensor x = wave({kNumel}, 1);
  for (const int bits : {4, 8, 16, 32}) {
    const int64_t bytes = wire_record_bytes(kNumel, bits);
    const Tensor expected = empty({bytes}, DType::u8), back = empty({kNumel}, DType::f32);
    cpu_.run(EncodeWire{.x = x, .records = expected, .bits = bits});
    cpu_.run(DecodeWire{.records = expected, .y = back, .bits = bits});
    for (const int64_t offset : {1, 2, 3}) {
      const Tensor values = device_.empty({kNumel + offset}, DType::f32).flat(offset, kNumel + offset);
      const Tensor records = device_.empty({bytes + offset}, DType::u8).flat(offset, bytes + offset);
      upload_bytes({x.raw(), static_cast<size_t>(x.bytes())}, values, *device_.stream);
      device_.run(EncodeWire{.x = values, .records = records, .bits = bits});
      expect_same_bits(device_.on_host(records), expected);
      device_.run(DecodeWire{.records = records, .y = values, .bits = bits});
      expect_same_bits(device_.on_host(values), back);
    }
  }
}

TEST_F(CudaBits, of_what_optimizers_do_to_signs_are_those_of_the_cpu) {
  for (const int64_t n : {1, 9, 1003}) {
    const Tensor bits = empty({ceil_div(n, 8)}, DType::u8), scale = of<float>({0.3F});
    for (int64_t i = 0; i < bits.numel(); ++i) bits.data<uint8_t>()[i] = static_cast<uint8_t>(37 * i + 5);
    for (const bool accumulate : {false, true})
      expect_bits_of_the_cpu(
          OneBitDecode{.bits = bits, .scale = scale, .y = wave({n}, 1), .factor = 1.0 / 3, .accumulate = accumulate});
    const Tensor second = positive(n, 2);
    second.data<float>()[n / 2] = 0;
    for (const bool multiply : {false, true})
      expect_bits_of_the_cpu(Precondition{
          .x = wave({n}, 3), .second_moment = second, .y = empty({n}, DType::f32), .eps = 1e-3, .multiply = multiply});
    const Tensor in_place = wave({n}, 4);
    expect_bits_of_the_cpu(Precondition{.x = in_place, .second_moment = second, .y = in_place});
    expect_bits_of_the_cpu(GreatestRatio{.a = positive(n, 5), .b = second, .out = empty({1}, DType::f32), .eps = 1e-4});
  }
}

/// Squares are added in another order, in f64: their root is the same but for the last bit of fp32.
TEST_F(CudaBits, of_signs_are_those_of_the_cpu_and_their_scale_is_but_for_the_last) {
  for (const int64_t n : {1, 31, 33, 1003, 70001}) {
    const Tensor x = wave({n}, 1), error = wave({n}, 2), u = clone(error);
    cpu_.run(AddTo{.x = x, .into = u});
    const OneBitEncode op{
        .x = x, .error = error, .bits = empty({ceil_div(n, 8)}, DType::u8), .scale = empty({1}, DType::f32)};
    std::map<const std::byte*, Tensor> computed;
    for (const auto& [own, there] : run_on_both(op)) computed[own.raw()] = there;
    expect_same_bits(computed.at(op.bits.raw()), op.bits);
    const float scale = computed.at(op.scale.raw()).data<float>()[0], expected = op.scale.data<float>()[0];
    EXPECT_NEAR(scale, expected, 0x1p-23F * expected);
    for (int64_t i = 0; i < n; ++i) {
      const float value = u.data<float>()[i];
      ASSERT_EQ(computed.at(op.error.raw()).data<float>()[i], value - (value >= 0 ? scale : -scale)) << i;
    }
  }
}

/// Sums of products in f64 are added in another order; what is rounded to fp32 is the same but for the last bit.
TEST_F(CudaBits, of_orthonormal_rows_are_those_of_the_cpu_but_for_the_last) {
  for (const int64_t n : {1, 3, 255, 257, 1003})
    for (const bool draws : {false, true}) {
      const Tensor x = wave({5, n}, 1);
      float* const rows = x.data<float>();
      std::fill(rows, rows + n, 0.0F);
      for (int64_t k = 0; k < n; ++k) rows[3 * n + k] = 2 * rows[n + k] - rows[2 * n + k];
      for (const auto& [own, computed] : run_on_both(Orthonormalize{.x = x, .key = 7, .draws = draws}))
        test::expect_close(computed, own, 0x1p-23, 1e-12);
    }
}

}  // namespace
}  // namespace nought::bits_test
