// Blocks that are made of a folder's codes decode to the values of the folder, to the bit.
#include "nought/io/group_blocks.h"

#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "nought/io/gguf_blocks.h"
#include "nought/io/packed_matrix.h"

namespace nought::group_blocks_test {
namespace {

constexpr int64_t kRows = 4, kColumns = 64;

std::span<const std::byte> bytes_of(const std::vector<uint8_t>& bytes) { return std::as_bytes(std::span(bytes)); }

struct Folder {
  PackedMatrix matrix;
  std::vector<uint8_t> codes, scales, zeros;

  /// Codes, scales and zero points of all kinds, row after row.
  Folder(std::string_view name, int bits, int64_t group, PackedScales::Kind kind, ZeroPoints zero_points)
      : codes(static_cast<size_t>(kRows * kColumns * bits / 8)) {
    for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint8_t>(i * 37 + 11);
    scales.resize(static_cast<size_t>(kRows * kColumns / group) * 4);
    for (size_t i = 0; i < scales.size(); ++i) scales[i] = static_cast<uint8_t>(i % 2 == 1 ? 0x3B : i * 29);
    zeros.assign(scales.size(), 0x5A);
    matrix.format = &weight_format(name);
    matrix.rows = kRows, matrix.columns = kColumns, matrix.bits = bits, matrix.column_block = group;
    matrix.codes = bytes_of(codes);
    matrix.values = code_values(matrix.format->codes, bits);
    matrix.scales = {bytes_of(scales), kind};
    matrix.zeros = zero_points;
    matrix.zero_codes = bytes_of(zeros);
  }
};

void expect_same_values(const PackedMatrix& matrix) {
  const WeightFormat* format = group_format(matrix);
  ASSERT_NE(format, nullptr);
  EXPECT_EQ(format, group_format(matrix)) << "one object";
  const int64_t blocks = kRows * kColumns / format->block;
  std::vector<std::byte> bytes(static_cast<size_t>(blocks * format->block_bytes));
  make_groups(*format, matrix, {0, kRows}, {0, kColumns}, bytes.data());
  std::vector<float> expected(kRows * kColumns), got(expected.size());
  matrix.decode({0, kRows}, {0, kColumns}, expected.data());
  decode_blocks(*format, bytes.data(), blocks, got.data());
  EXPECT_EQ(std::memcmp(expected.data(), got.data(), got.size() * sizeof(float)), 0);
}

TEST(GroupBlocks, decode_to_the_values_of_every_folder) {
  using Kind = PackedScales::Kind;
  for (const int bits : {2, 3, 4, 5, 8})
    expect_same_values(Folder("pack-quantized", bits, 32, Kind::bf16, ZeroPoints::across).matrix);
  expect_same_values(Folder("int-quantized", 8, 64, Kind::f16, ZeroPoints::int8).matrix);
  expect_same_values(Folder("float-quantized", 8, 64, Kind::f32, ZeroPoints::none).matrix);
  expect_same_values(Folder("mxfp4-pack-quantized", 4, 32, Kind::e8m0, ZeroPoints::none).matrix);
  Folder nvfp4("nvfp4-pack-quantized", 4, 16, Kind::e4m3, ZeroPoints::none);
  nvfp4.matrix.factor = 3;
  expect_same_values(nvfp4.matrix);
}

TEST(GroupBlocks, columns_of_a_group_that_are_no_neighbours_make_none) {
  Folder folder("pack-quantized", 4, 32, PackedScales::Kind::bf16, ZeroPoints::none);
  EXPECT_EQ(group_format(folder.matrix)->block_bytes, 2 + 16);
  folder.matrix.group_of.assign(kColumns, 0);
  EXPECT_EQ(group_format(folder.matrix), nullptr);
}

TEST(GroupBlocks, sub_blocks_of_gguf_have_the_scales_of_their_block) {
  std::vector<uint8_t> block(18);
  block[0] = 0x00, block[1] = 0x3C;  // 1 in f16
  SubBlocks sub;
  read_sub_blocks(GgufType::q4_0, bytes_of(block).data(), sub);
  EXPECT_EQ(sub.size, 32);
  EXPECT_EQ(sub.scales[0], 1);
  EXPECT_FALSE(sub.has_mins);
}

}  // namespace
}  // namespace nought::group_blocks_test
