// Products by the functions of cuBLASLt: each kind of product is planned once, its bits depend on its shape alone, and
// its workspace is accounted. The numbers that the library is called with are held against a real one where there is.
#include "nought/cuda/backend/blas.h"

#include <cstring>

#include "cuda_emulation/control.h"
#include "support/kernel_test.h"
#include "support/known_paths.h"
#include "support/message_of.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/cuda/backend/kernels.h"

namespace nought::cuda::blas_test {
namespace {

using test::expect_same_bits;
using test::message_of;
using ::testing::HasSubstr;

class CudaProducts : public test::KernelTest {
 protected:
  Context context_ = make_context({.poison = true});

  /// A copy on the device that begins `offset` elements behind an address that products like.
  Tensor there(const Tensor& x, int64_t offset = 0) const {
    const Tensor room = context_.empty({x.numel() + offset}, x.dtype());
    const Tensor copied = room.flat(offset, offset + x.numel()).reshape(x.shape());
    upload_bytes({x.raw(), static_cast<size_t>(x.bytes())}, copied, *context_.stream);
    return copied;
  }
  int64_t runs_on_host() const { return dynamic_cast<const CudaKernels&>(*context_.kernels).runs_on_host(); }
  /// Products of codes, here and on the device, are those of their values.
  void expect_products_of_values(const Weight& quantized, const Weight& codes) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
      const Tensor decoded = empty({6, 96}, DType::f32);
      reference::run(DequantizeBlocks{.weight = quantized, .x = decoded});
      const Tensor weight = there(test::converted(*memory_, decoded, dtype));
      for (const bool transpose : {true, false}) {
        const Tensor a = there(random({5, transpose ? 96 : 6}, dtype, 2));
        const Shape shape{5, transpose ? 6 : 96};
        const Tensor by_codes = context_.empty(shape, dtype), by_values = context_.empty(shape, dtype);
        context_.run(MatMul{.a = a, .b = codes, .c = by_codes, .transpose_b = transpose});
        context_.run(MatMul{.a = a, .b = weight, .c = by_values, .transpose_b = transpose});
        expect_same_bits(context_.on_host(by_codes), context_.on_host(by_values));
      }
    }
    EXPECT_EQ(runs_on_host(), 0);
  }
};

TEST_F(CudaProducts, a_kind_of_product_is_planned_once) {
  const Tensor a = there(random({5, 40}, DType::bf16, 1)), b = there(random({7, 40}, DType::bf16, 2));
  const Tensor c = context_.empty({5, 7}, DType::f32);
  const MatMul op{.a = a, .b = b, .c = c, .transpose_b = true};
  const int before = emulation::heuristics_asked();
  context_.run(op);
  EXPECT_EQ(emulation::heuristics_asked(), before + 1);
  MatMul again = op;
  again.accumulate = true;
  context_.run(again);
  context_.run(MatMul{.a = there(random({5, 40}, DType::bf16, 3), 3), .b = b, .c = c, .transpose_b = true});
  EXPECT_EQ(emulation::heuristics_asked(), before + 1) << "neither sums nor addresses make another kind";
  context_.run(MatMul{.a = a, .b = b, .c = context_.empty({5, 7}, DType::bf16), .transpose_b = true});
  EXPECT_EQ(emulation::heuristics_asked(), before + 2);
}

TEST_F(CudaProducts, bits_do_not_depend_on_where_operands_lie) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const Tensor a = random({9, 700}, dtype, 1), b = random({700, 11}, dtype, 2), bias = random({11}, dtype, 3),
                 before = random({9, 11}, dtype, 4);
    std::vector<Tensor> results;
    for (const int64_t offset : {0, 1, 5}) {
      const Tensor c = there(before, offset);
      context_.run(MatMul{
          .a = there(a, offset), .b = there(b, offset), .c = c, .bias = there(bias, offset), .accumulate = true});
      results.push_back(context_.on_host(c));
    }
    for (const Tensor& result : results) expect_same_bits(result, results[0]);
  }
}

TEST_F(CudaProducts, workspace_of_split_sums_is_accounted_and_goes_back) {
  const Tensor a = there(random({4, 3000}, DType::f32, 1)), b = there(random({3000, 8}, DType::f32, 2));
  const Tensor c = context_.empty({4, 8}, DType::f32);
  auto& ledger = context_.memory->ledger();
  ledger.reset_peaks();
  context_.run(MatMul{.a = a, .b = b, .c = c});
  EXPECT_GT(ledger.peak(Category::workspace), 0);
  EXPECT_EQ(ledger.current(Category::workspace), 0);
}

TEST_F(CudaProducts, partial_sums_are_not_rounded) {
  // Partial sums of hundreds and a total of -0.5: bf16 has no room for both.
  Tensor a = random({8, 2048}, DType::bf16, 1), b = random({2048, 8}, DType::bf16, 2);
  for (bf16_t& value : a.span<bf16_t>()) value = bf16_t(0.5f);
  for (bf16_t& value : b.span<bf16_t>()) value = bf16_t(1.0f);
  for (int64_t j = 0; j < 8; ++j) b.data<bf16_t>()[j] = bf16_t(-2048.0f);
  const Tensor c = context_.empty({8, 8}, DType::bf16);
  context_.run(MatMul{.a = there(a), .b = there(b), .c = c});
  EXPECT_THAT(context_.to_host<float>(c), ::testing::Each(-0.5f));
}

TEST_F(CudaProducts, codes_are_those_of_a_dense_weight) {
  const Tensor dense = random({6, 96}, DType::f32, 1);
  const Weight quantized{empty({6, 96}, DType::i8), empty({6, 3}, DType::f16)};
  reference::run(QuantizeBlocks{.x = dense, .codes = quantized.values, .scales = quantized.scales});
  expect_products_of_values(quantized, {there(quantized.values), there(quantized.scales)});

  const Tensor bytes = empty({288}, DType::u8), scales = random({9}, DType::f32, 3);
  for (int64_t i = 0; i < 288; ++i) bytes.data<uint8_t>()[i] = static_cast<uint8_t>(i * 37);
  expect_products_of_values({CodeKind::nf4, {6, 96}, bytes, scales},
                            {CodeKind::nf4, {6, 96}, there(bytes), there(scales)});
}

TEST_F(CudaProducts, what_the_library_cannot_do_runs_on_the_host) {
  const Tensor a = there(random({3, 4}, DType::f64, 1)), b = there(random({4, 5}, DType::f64, 2));
  const Tensor c = context_.empty({3, 5}, DType::f32);
  context_.run(MatMul{.a = a, .b = b, .c = c});
  EXPECT_EQ(runs_on_host(), 1);
}

TEST_F(CudaProducts, a_product_without_an_algorithm_is_named) {
  Blas blas;
  EXPECT_EQ(message_of<DeviceError>(
                [&] { blas.workspace_of({.m = 3, .n = 4, .k = 5, .inputs = DType::f64, .transpose_a = true}); }),
            "cuBLASLt: the product of 3' x 4 x 5 in f64 to f32: status 15 (not supported)");
}

TEST_F(CudaProducts, a_library_without_a_function_is_named) {
  EXPECT_THAT(message_of<IoError>([] { load_blas({.folders = {test::known_path("fake_cuda")}, .in_system = false}); }),
              HasSubstr("libcublasLt.so.13 has no cublasLtCreate"));
}

/// The library checks the size of each attribute, without a GPU too.
TEST_F(CudaProducts, a_real_library_takes_what_it_is_given) {
  BlasFunctions real{};
  try {
    real = load_blas(LibrarySearch::of_environment());
  } catch (const IoError& missing) {
    GTEST_SKIP() << missing.what();
  }
  blas::Desc desc = nullptr;
  ASSERT_EQ(real.desc_create(&desc, blas::kCompute32, blas::kF32), blas::kSuccess);
  const int32_t one = 1;
  const void* const address = &one;
  for (const int attribute : {blas::kTransposeA, blas::kTransposeB, blas::kEpilogue})
    EXPECT_EQ(real.desc_set(desc, attribute, &one, sizeof(one)), blas::kSuccess) << attribute;
  EXPECT_EQ(real.desc_set(desc, blas::kBiasPointer, &address, sizeof(address)), blas::kSuccess);
  EXPECT_EQ(real.desc_set(desc, blas::kBiasPointer, &one, sizeof(one)), blas::kInvalidValue);
  blas::Layout layout = nullptr;
  EXPECT_EQ(real.layout_create(&layout, blas::kBf16, 3, 4, 3), blas::kSuccess);
  blas::Preference preference = nullptr;
  ASSERT_EQ(real.preference_create(&preference), blas::kSuccess);
  const uint64_t limit = 1 << 20;
  const uint32_t value = 16;
  EXPECT_EQ(real.preference_set(preference, blas::kMaxWorkspace, &limit, sizeof(limit)), blas::kSuccess);
  for (const int attribute :
       {blas::kReductions, blas::kAlignmentA, blas::kAlignmentB, blas::kAlignmentC, blas::kAlignmentD})
    EXPECT_EQ(real.preference_set(preference, attribute, &value, sizeof(value)), blas::kSuccess) << attribute;
  EXPECT_EQ(real.preference_destroy(preference), blas::kSuccess);
  EXPECT_EQ(real.layout_destroy(layout), blas::kSuccess);
  EXPECT_EQ(real.desc_destroy(desc), blas::kSuccess);
}

}  // namespace
}  // namespace nought::cuda::blas_test
