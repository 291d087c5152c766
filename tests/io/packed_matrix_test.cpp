// Any rectangle of a matrix of codes has the values that the formats' documentation gives.
#include "nought/io/packed_matrix.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nought::packed_matrix_test {
namespace {

using testing::ElementsAre;
using testing::FloatEq;
using testing::Pointwise;

/// A matrix of one format; the words lie in the test.
PackedMatrix matrix_of(std::string_view format, int bits, int64_t rows, int64_t columns) {
  PackedMatrix matrix;
  matrix.format = &weight_format(format);
  matrix.bits = bits;
  matrix.values = code_values(matrix.format->codes, bits);
  matrix.rows = rows, matrix.columns = columns, matrix.column_block = columns;
  return matrix;
}

template <class T>
std::span<const std::byte> bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

std::vector<float> decoded(const PackedMatrix& matrix, Interval rows, Interval columns) {
  std::vector<float> values(static_cast<size_t>(rows.size() * columns.size()));
  matrix.decode(rows, columns, values.data());
  return values;
}
std::vector<float> decoded(const PackedMatrix& matrix) {
  return decoded(matrix, {0, matrix.rows}, {0, matrix.columns});
}

/// A GPTQ matrix of one output with the words of its codes and of its zero point.
struct Gptq {
  PackedMatrix matrix;
  std::vector<uint32_t> words, zeros;
  std::vector<float> scales;

  Gptq(int bits, int64_t rows, int64_t columns, std::vector<uint32_t> codes, std::vector<uint32_t> zero_words)
      : matrix(matrix_of("gptq", bits, rows, columns)), words(std::move(codes)), zeros(std::move(zero_words)) {
    scales.assign(static_cast<size_t>(rows), 1);
    matrix.codes = bytes_of(words);
    matrix.scales = {bytes_of(scales), PackedScales::Kind::f32};
    matrix.scales_by_group = true;
    matrix.zeros = ZeroPoints::along_rows;
    matrix.zero_codes = bytes_of(zeros);
    matrix.one_less = true;
  }
};

TEST(PackedMatrix, gptq_reads_nibbles_from_the_lowest_and_subtracts_the_zero_point) {
  Gptq gptq(4, 1, 8, {0x9A3F7C08}, {0x00000007});
  gptq.scales = {.02f};
  gptq.matrix.scales = {bytes_of(gptq.scales), PackedScales::Kind::f32};
  EXPECT_THAT(decoded(gptq.matrix), Pointwise(FloatEq(), {0.0f, -.16f, .08f, -.02f, .14f, -.10f, .04f, .02f}));
  EXPECT_EQ(decoded(gptq.matrix, {0, 1}, {3, 5}), (std::vector<float>{-1 * .02f, 7 * .02f}));
}

TEST(PackedMatrix, the_one_of_gptq_v1_is_added_to_whole_words_with_its_carries) {
  // Zero points 0 and 5 were stored as 0x50 - 0x11 = 0x3F.
  const Gptq gptq(4, 2, 8, std::vector<uint32_t>(2, 0), {0x3F});
  EXPECT_EQ(decoded(gptq.matrix, {0, 2}, {0, 1}), (std::vector<float>{-0.0f, -5}));
}

TEST(PackedMatrix, three_bits_are_one_stream_whose_fields_straddle_words) {
  // 32 codes i % 8 in three words; zero points less one, field by field.
  std::vector<uint32_t> words(3, 0);
  for (uint32_t i = 0; i < 32; ++i)
    for (uint32_t bit = 0; bit < 3; ++bit) words[(3 * i + bit) / 32] |= (i % 8 >> bit & 1) << ((3 * i + bit) % 32);
  const Gptq gptq(3, 1, 32, words, {7});  // 7 is -1: the zero point 0
  const std::vector<float> values = decoded(gptq.matrix);
  for (size_t i = 0; i < values.size(); ++i) EXPECT_EQ(values[i], static_cast<float>(i % 8)) << i;
}

TEST(PackedMatrix, columns_of_gptq_may_name_their_group_in_any_order) {
  Gptq gptq(4, 1, 8, {0x77777777}, {0x0, 0x0});
  gptq.matrix.one_less = false;
  gptq.scales = {1, 10};
  gptq.matrix.scales = {bytes_of(gptq.scales), PackedScales::Kind::f32};
  gptq.matrix.group_of = {1, 0, 1, 0, 0, 0, 1, 1};
  gptq.matrix.num_groups = 2;
  EXPECT_THAT(decoded(gptq.matrix), ElementsAre(70, 7, 70, 7, 7, 7, 70, 70));
}

TEST(PackedMatrix, awq_packs_outputs_in_its_own_order) {
  PackedMatrix matrix = matrix_of("awq", 4, 8, 1);
  const std::vector<uint32_t> words{0x9A3F7C08}, zeros{0};
  const std::vector<float> scales(8, 1);
  matrix.codes = bytes_of(words);
  matrix.scales = {bytes_of(scales), PackedScales::Kind::f32};
  matrix.scales_by_group = true;
  matrix.zeros = ZeroPoints::awq;
  matrix.zero_codes = bytes_of(zeros);
  EXPECT_THAT(decoded(matrix), ElementsAre(8, 15, 0, 3, 12, 10, 7, 9));
}

TEST(PackedMatrix, the_last_blocks_of_scales_may_be_short) {
  PackedMatrix matrix = matrix_of("float-quantized", 8, 3, 5);
  const std::vector<uint8_t> codes(15, 0x38);  // 1
  const std::vector<float> scales{1, 2, 3, 4, 5, 6};
  matrix.codes = bytes_of(codes);
  matrix.row_block = 2, matrix.column_block = 2;
  matrix.scales = {bytes_of(scales), PackedScales::Kind::f32};
  EXPECT_THAT(decoded(matrix), ElementsAre(1, 1, 2, 2, 3, 1, 1, 2, 2, 3, 4, 4, 5, 5, 6));
}

TEST(PackedMatrix, blocks_of_bitsandbytes_run_over_the_flattened_matrix) {
  PackedMatrix matrix = matrix_of("bnb-nf4", 4, 2, 3);
  const std::vector<uint8_t> codes{0xF2, 0x97, 0xF0};
  const std::vector<float> scales{1, 2};
  matrix.codes = bytes_of(codes);
  matrix.column_block = 4;
  matrix.scales = {bytes_of(scales), PackedScales::Kind::f32};
  const std::array<float, 256> nf4 = code_values(CodeTable::nf4, 4);
  EXPECT_THAT(decoded(matrix), ElementsAre(1, nf4[2], nf4[9], nf4[7], 2, -2));
  EXPECT_THAT(decoded(matrix, {1, 2}, {1, 2}), ElementsAre(2));
}

TEST(PackedMatrix, four_bit_floats_have_the_low_one_first_and_scales_of_powers_of_two) {
  PackedMatrix matrix = matrix_of("mxfp4-pack-quantized", 4, 1, 4);
  const std::vector<uint8_t> codes{0x5A, 0x71}, scales{125};
  matrix.codes = bytes_of(codes);
  matrix.scales = {bytes_of(scales), PackedScales::Kind::e8m0};
  EXPECT_THAT(decoded(matrix), ElementsAre(-.25f, .75f, .125f, 1.5f));
}

TEST(PackedMatrix, a_rectangle_of_blocks_is_cut_from_whole_ones) {
  PackedMatrix matrix = matrix_of("q8_0", 8, 2, 64);
  std::vector<uint8_t> bytes;
  for (int block = 0; block < 4; ++block) {
    bytes.push_back(0x00), bytes.push_back(0x3C);  // f16 1
    for (int i = 0; i < 32; ++i) bytes.push_back(static_cast<uint8_t>(32 * (block % 2) + i + 64 * (block / 2)));
  }
  matrix.codes = bytes_of(bytes);
  EXPECT_THAT(decoded(matrix, {1, 2}, {30, 34}), ElementsAre(94, 95, 96, 97));
}

}  // namespace
}  // namespace nought::packed_matrix_test
