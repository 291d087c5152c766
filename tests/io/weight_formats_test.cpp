// The values of every format are those of its own library.
#include "nought/io/weight_formats.h"

#include <cctype>
#include <cstring>

#include "support/golden_root.h"
#include <gtest/gtest.h>

#include "nought/io/safetensors.h"

namespace nought::weight_formats_test {
namespace {

std::vector<uint8_t> bytes_of(const SafetensorsFile& file, const std::string& name) {
  const auto raw = file.raw(file.at(name));
  std::vector<uint8_t> bytes(raw.size());
  std::memcpy(bytes.data(), raw.data(), raw.size());
  return bytes;
}

TEST(WeightFormats, blocks_of_every_type_decode_to_the_bits_of_ggml) {
  const SafetensorsFile file(test::golden_root() + "/quant/gguf/blocks.safetensors");
  int types = 0;
  for (const WeightFormat& format : weight_formats()) {
    std::string name(format.name);
    for (char& letter : name) letter = static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
    if (!format.gguf || file.find(name + ".bytes") == nullptr) continue;
    SCOPED_TRACE(name);
    const std::vector<uint8_t> bytes = bytes_of(file, name + ".bytes");
    const auto blocks = static_cast<int64_t>(bytes.size()) / format.block_bytes;
    std::vector<float> values(static_cast<size_t>(blocks * format.block));
    decode_blocks(*format.gguf, reinterpret_cast<const std::byte*>(bytes.data()), blocks, values.data());
    const std::vector<uint8_t> expected = bytes_of(file, name + ".values");
    ASSERT_EQ(expected.size(), values.size() * sizeof(float));
    EXPECT_EQ(std::memcmp(expected.data(), values.data(), expected.size()), 0);
    ++types;
  }
  EXPECT_EQ(types, 13);
}

TEST(WeightFormats, a_row_says_how_many_bits_a_weight_takes) {
  EXPECT_EQ(weight_format(GgufType::q4_k).bits_per_weight(), 4.5);
  EXPECT_EQ(weight_format(GgufType::q6_k).bits_per_weight(), 6.5625);
  EXPECT_EQ(weight_format("q8_0").gguf, GgufType::q8_0);
}

TEST(WeightFormats, types_that_are_not_read_have_names) {
  EXPECT_EQ(find_gguf_type(17), nullptr);
  EXPECT_EQ(gguf_type_name(17), "iq2_xs");
  EXPECT_EQ(gguf_type_name(12), "q4_k");
  EXPECT_EQ(gguf_type_name(999), "");
}

TEST(WeightFormats, tables_of_codes_are_those_of_their_papers) {
  EXPECT_EQ(code_values(CodeTable::biased, 4)[0], -8);
  EXPECT_EQ(code_values(CodeTable::int8, 8)[255], -1);
  EXPECT_EQ(code_values(CodeTable::natural, 8)[255], 255);
  EXPECT_EQ(code_values(CodeTable::e2m1, 4)[15], -6);
  EXPECT_EQ(code_values(CodeTable::nf4, 4)[15], 1);
  EXPECT_EQ(code_values(CodeTable::fp4, 4)[10], -8.0f / 12);
  EXPECT_EQ(code_values(CodeTable::e4m3, 8)[0x7E], 448);
  EXPECT_EQ(e8m0_value(125), .25f);
}

}  // namespace
}  // namespace nought::weight_formats_test
