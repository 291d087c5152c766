// Weights of blocks: every type of GGUF, through every kernel that reads a weight.
#include <algorithm>
#include <cctype>
#include <cmath>

#include "support/golden_root.h"
#include "support/kernel_test.h"
#include "support/message_of.h"
#include <gmock/gmock.h>

#include "nought/io/group_blocks.h"
#include "nought/io/packed_matrix.h"
#include "nought/io/safetensors.h"
#include "nought/kernels/rounded_inputs.h"
#include "nought/kernels/weight.h"

namespace nought::blocks_test {
namespace {

using namespace test;

class Blocks : public KernelTest {
 protected:
  /// Rows of 512 elements of a type, of the golden's blocks that have finite values.
  Weight weight_of(const WeightFormat& format, int64_t rows) {
    std::string name(format.name);
    for (char& letter : name) letter = static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
    const auto raw = file_.raw(file_.at(name + ".bytes"));
    std::vector<uint8_t> bytes;
    std::vector<float> values(static_cast<size_t>(format.block));
    const int64_t blocks = rows * kColumns / format.block;
    for (int64_t i = 0; std::ssize(bytes) < blocks * format.block_bytes; ++i) {
      const std::byte* block = raw.data() + i % (std::ssize(raw) / format.block_bytes) * format.block_bytes;
      decode_blocks(format, block, 1, values.data());
      const auto* from = reinterpret_cast<const uint8_t*>(block);
      if (std::ranges::all_of(values, [](float x) { return std::isfinite(x); }))
        bytes.insert(bytes.end(), from, from + format.block_bytes);
    }
    return {Shape{rows, kColumns}, tensor_u8(bytes), {{&format, rows * kColumns}}};
  }
  Tensor tensor_u8(const std::vector<uint8_t>& bytes) {
    Tensor all = empty({std::ssize(bytes)}, DType::u8);
    std::ranges::copy(bytes, all.data<uint8_t>());
    return all;
  }
  Tensor decoded(const Weight& weight) {
    Tensor x = empty(weight.shape(), DType::f32);
    run(DequantizeBlocks{.weight = weight, .x = x});
    return x;
  }
  Tensor product(const Tensor& a, const Weight& b) {
    Tensor c = empty({a.dim(0), b.dim(0)}, DType::f32);
    run(MatMul{.a = a, .b = b, .c = c, .transpose_b = true});
    return c;
  }
  Tensor activations(int64_t rows) {
    Tensor a = empty({rows, kColumns}, DType::f32);
    for (int64_t i = 0; i < a.numel(); ++i) a.data<float>()[i] = std::sin(static_cast<float>(i));
    return a;
  }

  static constexpr int64_t kColumns = 512;
  SafetensorsFile file_{golden_root() + "/quant/gguf/blocks.safetensors"};
};

/// Types that have blocks of codes.
std::vector<const WeightFormat*> types() {
  std::vector<const WeightFormat*> all;
  for (const WeightFormat& format : weight_formats())
    if (format.gguf && format.block > 1) all.push_back(&format);
  return all;
}

TEST_F(Blocks, are_decoded_to_the_bits_of_the_table_of_formats) {
  for (const WeightFormat* format : types()) {
    SCOPED_TRACE(format->name);
    const Weight weight = weight_of(*format, 3);
    std::vector<float> expected(static_cast<size_t>(weight.numel()));
    decode_blocks(*format, weight.values.raw(), weight.numel() / format->block, expected.data());
    EXPECT_EQ(decoded(weight).to_vector<float>(), expected);
  }
  EXPECT_EQ(types().size(), 13U);
}

/// Few rows and many take different kernels.
TEST_F(Blocks, a_product_has_the_bits_of_that_of_the_decoded_weight_whatever_the_batch) {
  for (const WeightFormat* format : types()) {
    SCOPED_TRACE(format->name);
    const Weight weight = weight_of(*format, 40);
    const Tensor dense = decoded(weight), a = activations(20);
    const std::vector<float> expected = product(a, dense).to_vector<float>();
    EXPECT_EQ(product(a, weight).to_vector<float>(), expected);
    for (const int64_t rows : {1, 3}) {
      const std::vector<float> few = product(a.slice(0, rows), weight).to_vector<float>();
      EXPECT_TRUE(std::equal(few.begin(), few.end(), expected.begin())) << rows << " rows";
    }
  }
}

/// Rows in stretches of 32, each rounded to 127 steps of its largest magnitude.
std::vector<float> rounded(std::span<const float> row) {
  std::vector<float> values;
  for (size_t at = 0; at < row.size(); at += 32) {
    float largest = 0;
    for (const float x : row.subspan(at, 32)) largest = std::max(largest, std::abs(x));
    for (const float x : row.subspan(at, 32))
      values.push_back(largest == 0 ? 0 : std::nearbyint(x * (127 / largest)) * (largest / 127));
  }
  return values;
}

class RoundedProducts : public Blocks {
 protected:
  void SetUp() override {
    if (!can_round_inputs()) GTEST_SKIP() << "this CPU rounds no inputs";
    kernels_ = make_rounding_cpu_kernels();
  }
  Tensor rounded_product(const MatMul& op) {
    Stream stream;
    kernels_->run(op, stream);
    return op.c;
  }
  Tensor rounded_product(const Tensor& a, const Weight& b) {
    return rounded_product({.a = a, .b = b, .c = empty({a.dim(0), b.dim(0)}, DType::f32), .transpose_b = true});
  }
  /// Q8_0 with codes and scales in tensors of their own.
  Weight eight_bits(int64_t rows) {
    Tensor codes = empty({rows, kColumns}, DType::i8), scales = empty({rows, kColumns / kCodeBlock}, DType::f16);
    for (int64_t i = 0; i < codes.numel(); ++i) codes.data<int8_t>()[i] = static_cast<int8_t>(i * 37 % 256 - 128);
    for (int64_t i = 0; i < scales.numel(); ++i)
      scales.data<f16_t>()[i] = f16_t(0.001f * static_cast<float>(i % 9 - 4));
    return {codes, scales};
  }
  Tensor values_of(const Weight& eight_bits) {
    Tensor values = empty(eight_bits.shape(), DType::f32);
    for (int64_t i = 0; i < values.numel(); ++i)
      values.data<float>()[i] = static_cast<float>(eight_bits.values.data<int8_t>()[i]) *
                                static_cast<float>(eight_bits.scales.data<f16_t>()[i / kCodeBlock]);
    return values;
  }

 private:
  std::unique_ptr<Kernels> kernels_;
};

TEST_F(RoundedProducts, are_those_of_rounded_rows_by_the_decoded_weight) {
  const Tensor a = activations(70);
  for (int64_t i = 0; i < 256; ++i) a.data<float>()[i] = 0;  // they have no scale
  std::vector<Weight> weights = {eight_bits(40)};
  for (const WeightFormat* format : types()) weights.push_back(weight_of(*format, 40));
  for (const Weight& weight : weights) {
    SCOPED_TRACE(weight.str());
    const Tensor dense = weight.is_blocks() ? decoded(weight) : values_of(weight);
    const Tensor rows = empty(a.shape(), DType::f32);
    std::ranges::copy(rounded({a.data<float>(), static_cast<size_t>(a.numel())}), rows.data<float>());
    const std::vector<float> expected = product(rows, dense).to_vector<float>();
    const std::vector<float> whole = rounded_product(a, weight).to_vector<float>();
    for (size_t i = 0; i < whole.size(); ++i) {
      float most = 0;  // what is added up
      for (int64_t p = 0; p < kColumns; ++p)
        most += std::abs(rows.data<float>()[static_cast<int64_t>(i) / 40 * kColumns + p] *
                         dense.data<float>()[static_cast<int64_t>(i) % 40 * kColumns + p]);
      ASSERT_NEAR(whole[i], expected[i], 1e-5f * most) << i;
    }
    for (const int64_t count : {1, 3, 6}) {
      const std::vector<float> few = rounded_product(a.slice(0, count), weight).to_vector<float>();
      EXPECT_TRUE(std::equal(few.begin(), few.end(), whole.begin())) << "the bits of " << count << " rows";
    }
  }
}

TEST_F(RoundedProducts, add_biases_and_what_is_there_and_round_to_the_dtype) {
  const Tensor wide = activations(3), a = empty(wide.shape(), DType::bf16), bias = empty({16}, DType::bf16);
  for (int64_t i = 0; i < a.numel(); ++i) a.data<bf16_t>()[i] = bf16_t(wide.data<float>()[i]);
  for (int64_t i = 0; i < 16; ++i) bias.data<bf16_t>()[i] = bf16_t(static_cast<float>(i));
  const Weight weight = weight_of(weight_format("q4_k"), 16);
  const std::vector<float> plain =
      rounded_product({.a = a, .b = weight, .c = empty({3, 16}, DType::f32), .transpose_b = true}).to_vector<float>();
  const Tensor c = empty({3, 16}, DType::bf16);
  for (int64_t i = 0; i < c.numel(); ++i) c.data<bf16_t>()[i] = bf16_t(0.5f);
  rounded_product({.a = a, .b = weight, .c = c, .bias = bias, .transpose_b = true, .accumulate = true});
  for (int64_t i = 0; i < c.numel(); ++i)
    EXPECT_EQ(static_cast<float>(c.data<bf16_t>()[i]),
              static_cast<float>(bf16_t(plain[static_cast<size_t>(i)] + static_cast<float>(i % 16) + 0.5f)));
}

TEST_F(RoundedProducts, pass_on_what_is_no_number_and_leave_other_rows_alone) {
  Tensor a = activations(2);
  const std::vector<float> before = rounded_product(a, eight_bits(16)).to_vector<float>();
  for (const float broken : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    a.data<float>()[5] = broken;
    const std::vector<float> after = rounded_product(a, eight_bits(16)).to_vector<float>();
    EXPECT_TRUE(std::all_of(after.begin(), after.begin() + 16, [](float x) { return std::isnan(x); }));
    EXPECT_TRUE(std::equal(after.begin() + 16, after.end(), before.begin() + 16));
  }
}

TEST_F(Blocks, rows_of_several_formats_are_one_weight_and_its_parts_are_views) {
  const WeightFormat &four = weight_format("q4_k"), &six = weight_format("q6_k");
  const Weight first = weight_of(four, 2), second = weight_of(six, 3);
  std::vector<uint8_t> bytes = first.values.to_vector<uint8_t>();
  for (const uint8_t byte : second.values.to_vector<uint8_t>()) bytes.push_back(byte);
  const Weight both(Shape{5, kColumns}, tensor_u8(bytes), {{&four, 2 * kColumns}, {&six, 5 * kColumns}});
  const std::vector<float> all = decoded(both).to_vector<float>(), part = decoded(both.slice(1, 4)).to_vector<float>();
  EXPECT_TRUE(std::equal(part.begin(), part.end(), all.begin() + kColumns));
  EXPECT_EQ(both.slice(1, 4).values.numel(), bytes_of_blocks(four, kColumns) + bytes_of_blocks(six, 2 * kColumns));
  EXPECT_EQ(decoded(both.slice(2, 5)).to_vector<float>(), decoded(second).to_vector<float>());
  EXPECT_THAT(message_of<ShapeError>([&] { bytes_of_blocks(four, 100); }),
              ::testing::HasSubstr("whole blocks of q4_k"));
}

TEST_F(Blocks, those_of_folders_are_decoded_to_the_bits_of_the_folder) {
  for (const char* name : {"pack-quantized", "gptq", "int-quantized", "float-quantized", "mxfp4-pack-quantized"}) {
    SCOPED_TRACE(name);
    PackedMatrix matrix;
    matrix.format = &weight_format(name);
    matrix.bits = matrix.format->bits == 0 ? 4 : matrix.format->bits;
    matrix.rows = 2, matrix.columns = kColumns, matrix.column_block = 32;
    matrix.values = code_values(matrix.format->codes, matrix.bits);
    std::vector<uint8_t> codes(static_cast<size_t>(matrix.rows * kColumns * matrix.bits / 8)), scales(64 * 32, 0x3C);
    for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint8_t>(i * 37 % 127);
    matrix.codes = std::as_bytes(std::span(codes));
    matrix.scales = {std::as_bytes(std::span(scales)), ScaleType::bf16};
    const WeightFormat& format = *group_format(matrix);
    std::vector<uint8_t> bytes(static_cast<size_t>(bytes_of_blocks(format, matrix.rows * kColumns)));
    make_groups(format, matrix, {0, matrix.rows}, {0, kColumns}, reinterpret_cast<std::byte*>(bytes.data()));
    std::vector<float> expected(static_cast<size_t>(matrix.rows * kColumns));
    matrix.decode({0, matrix.rows}, {0, kColumns}, expected.data());
    const Weight weight(Shape{matrix.rows, kColumns}, tensor_u8(bytes), {{&format, matrix.rows * kColumns}});
    EXPECT_EQ(decoded(weight).to_vector<float>(), expected);
  }
}

}  // namespace
}  // namespace nought::blocks_test
