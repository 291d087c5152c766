// Codes of 4 bits: those that bitsandbytes makes, to the bit, and the products that read them.
#include "nought/kernels/four_bits.h"

#include "support/golden.h"
#include "support/kernel_test.h"
#include "support/message_of.h"
#include "support/size.h"
#include <gmock/gmock.h>

#include "nought/io/safetensors.h"
#include "nought/kernels/code_kind.h"

namespace nought::four_bits_test {
namespace {

using namespace test;
using ::testing::HasSubstr;

class FourBits : public KernelTest {
 protected:
  Weight quantized(CodeKind kind, const Tensor& x) {
    const Weight weight{kind, x.shape(), empty({x.numel() / 2}, DType::u8),
                        empty({x.numel() / kFourBitBlock}, DType::f32)};
    for (int64_t block = 0; block < weight.scales.numel(); ++block)
      weight.scales.data<float>()[block] =
          quantize_four_bits(kind, {x.data<float>() + block * kFourBitBlock, static_cast<size_t>(kFourBitBlock)},
                             weight.values.data<uint8_t>() + block * kCodeBlockBytes);
    return weight;
  }
  Tensor dequantized(const Weight& weight, DType dtype) {
    const Tensor x = empty(weight.shape(), dtype);
    run(DequantizeBlocks{.weight = weight, .x = x});
    return x;
  }
};

// --- bitsandbytes ---

struct Quantized {
  std::vector<uint8_t> codes;
  std::vector<float> scales;
};

/// Short last blocks, too.
Quantized quantize(CodeKind kind, std::span<const float> x) {
  Quantized all;
  for (size_t begin = 0; begin < x.size(); begin += kFourBitBlock) {
    const auto block = x.subspan(begin, std::min<size_t>(kFourBitBlock, x.size() - begin));
    all.codes.resize((begin + block.size() + 1) / 2);
    all.scales.push_back(quantize_four_bits(kind, block, all.codes.data() + begin / 2));
  }
  return all;
}

TEST_F(FourBits, codes_and_scales_are_those_of_bitsandbytes_to_the_bit) {
  const SafetensorsFile file(golden_folder("lora/nf4") + "/quantise.safetensors");
  const auto memory = Memory::create();
  const auto floats = [&](const std::string& name) { return file.load(name, *memory).to_vector<float>(); };
  size_t cases = 0;
  for (const char* of : {"odd", "whole", "zeros", "ties", "large"})
    for (const CodeKind kind : {CodeKind::nf4, CodeKind::fp4})
      for (const bool nested : {false, true}) {
        const std::string at = fmt::format("{}.{}{}", of, name_of(kind), nested ? ".nested" : "");
        if (file.find(at + ".codes") == nullptr) continue;
        SCOPED_TRACE(at);
        const std::vector<float> x = floats(fmt::format("{}.x", of));
        const Quantized made = quantize(kind, x);
        EXPECT_EQ(made.codes, file.load(at + ".codes", *memory).to_vector<uint8_t>());
        std::vector<float> scales = made.scales;
        if (nested) {
          const NestedScales all = nest_scales(made.scales);
          EXPECT_EQ(all.scales, floats(at + ".nested_absmax"));
          EXPECT_EQ(all.offset, floats(at + ".nested_offset").front());
          EXPECT_EQ(all.codes, file.load(at + ".absmax", *memory).to_vector<uint8_t>());
          for (size_t i = 0; i < scales.size(); ++i) scales[i] = all.at(static_cast<int64_t>(i));
        } else {
          EXPECT_EQ(scales, floats(at + ".absmax"));
        }
        if (file.find(at + ".values") == nullptr) continue;
        std::vector<float> values;
        for (size_t i = 0; i < x.size(); ++i)
          values.push_back(four_bit_values(kind)[made.codes[i / 2] >> (i % 2 == 0 ? 4 : 0) & 15] *
                           scales[i / kFourBitBlock]);
        EXPECT_EQ(values, floats(at + ".values"));
        ++cases;
      }
  EXPECT_EQ(cases, 16u);
}

TEST_F(FourBits, the_map_of_scales_is_that_of_bitsandbytes_to_the_bit) {
  const SafetensorsFile file(golden_folder("lora/nf4") + "/base/model.safetensors");
  const auto memory = Memory::create();
  const auto map = file.load("model.layers.0.mlp.up_proj.weight.nested_quant_map", *memory).to_vector<float>();
  EXPECT_TRUE(std::equal(map.begin(), map.end(), nested_values().begin()));
}

TEST_F(FourBits, scales_are_decoded_by_their_blocks) {
  const Tensor codes = empty({600}, DType::u8), nested = of<float>({0.25F, 1, 2, 3}), scales = empty({600}, DType::f32);
  for (int64_t i = 0; i < 600; ++i) codes.data<uint8_t>()[i] = static_cast<uint8_t>(i * 7);
  run(DecodeScales{.codes = codes, .nested = nested, .scales = scales});
  for (int64_t i = 0; i < 600; ++i)
    ASSERT_EQ(scales.data<float>()[i],
              nested_values()[static_cast<uint8_t>(i * 7)] * static_cast<float>(1 + i / 256) + 0.25F);
}

// --- weights ---

TEST_F(FourBits, views_are_whole_blocks) {
  const Weight weight = quantized(CodeKind::nf4, random({6, 96}, DType::f32, 1));
  EXPECT_EQ(weight.str(), "nf4[6, 96] with scales f32[9]");
  const Weight rows = weight.slice(2, 4);
  EXPECT_EQ(rows.shape(), (Shape{2, 96}));
  EXPECT_EQ(rows.values.raw(), weight.values.flat(96, 97).raw());
  EXPECT_EQ(rows.scales.raw(), weight.scales.flat(3, 4).raw());
  EXPECT_EQ(weight.reshape({2, 288}).shape(), (Shape{2, 288}));
  EXPECT_THAT(message_of<ShapeError>([&] { weight.slice(1, 3); }), HasSubstr("rows [1, 3) of nf4[6, 96]"));
  EXPECT_THAT(message_of<ShapeError>([&] {
                run(DequantizeBlocks{.weight = {CodeKind::fp4, {3, 40}, empty({60}, DType::u8), empty({2}, DType::f32)},
                                     .x = empty({3, 40}, DType::f32)});
              }),
              HasSubstr("fp4[3, 40]"));
}

TEST_F(FourBits, values_are_those_of_the_reference_in_every_dtype_and_instruction_set) {
  const Weight weight = quantized(CodeKind::fp4, random({9, 64}, DType::f32, 1));
  for_each_instruction_set([&] {
    for (const DType dtype : kCpuDTypes) {
      const Tensor expected = empty({9, 64}, dtype);
      reference::run(DequantizeBlocks{.weight = weight, .x = expected});
      expect_same_bits(dequantized(weight, dtype), expected);
    }
  });
}

class FourBitProducts : public FourBits {
 protected:
  /// y = x W' or dx = dy W, of a weight whose blocks are no rows.
  void expect_agreement(CodeKind kind, int64_t m, Shape weight, DType dtype, bool transpose) {
    const Weight codes = quantized(kind, random(weight, DType::f32, 2));
    const int64_t k = weight[transpose ? 1 : 0], n = weight[transpose ? 0 : 1];
    SCOPED_TRACE(fmt::format("{} rows by {}{} in {}", m, codes.str(), transpose ? "'" : "", name_of(dtype)));
    const Tensor a = random({m, k}, dtype, 1), c = empty({m, n}, DType::f32), expected = empty({m, n}, DType::f32);
    run(MatMul{.a = a, .b = codes, .c = c, .transpose_b = transpose});
    reference::run(MatMul{.a = a, .b = codes, .c = expected, .transpose_b = transpose});
    // Where bf16 units multiply, values are rounded to bf16 first.
    const bool rounds = dtype == DType::bf16 && has_bf16_units();
    const double terms = static_cast<double>(k), off = 4e-7 * terms + (rounds ? 3 * 0x1p-8 * std::sqrt(terms) : 0);
    for (int64_t i = 0; i < m * n; ++i) ASSERT_NEAR(c.data<float>()[i], expected.data<float>()[i], off + 1e-5) << i;
  }
};

NOUGHT_SIZE(medium);
TEST_F(FourBitProducts, are_those_of_the_values_for_few_rows_and_for_many) {
  for (const DType dtype : kCpuDTypes)
    for (const int64_t m : {1, 3, 6, 17, 40})
      for (const Shape& weight : {Shape{64, 32}, Shape{80, 48}, Shape{24, 72}, Shape{70, 416}, Shape{16, 1060}})
        for (const bool transpose : {true, false})
          expect_agreement(m % 2 == 0 ? CodeKind::fp4 : CodeKind::nf4, m, weight, dtype, transpose);
}

TEST_F(FourBitProducts, are_the_same_on_every_instruction_set_of_the_vectors) {
  for_each_instruction_set([&] {
    for (const int64_t m : {2, 20}) {
      expect_agreement(CodeKind::nf4, m, {80, 48}, DType::f32, true);
      expect_agreement(CodeKind::nf4, m, {80, 48}, DType::bf16, false);
    }
  });
}

}  // namespace
}  // namespace nought::four_bits_test
