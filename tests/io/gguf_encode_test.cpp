// Blocks that are written have the bytes of ggml's own encoders, or errors as small as theirs.
#include <cctype>
#include <cmath>
#include <cstring>

#include "support/golden_root.h"
#include <gtest/gtest.h>

#include "nought/io/safetensors.h"
#include "nought/io/weight_formats.h"

namespace nought::gguf_encode_test {
namespace {

template <class T>
std::vector<T> read(const SafetensorsFile& file, const std::string& name) {
  const auto raw = file.raw(file.at(name));
  std::vector<T> values(raw.size() / sizeof(T));
  std::memcpy(values.data(), raw.data(), raw.size());
  return values;
}

struct GgufEncode : testing::Test {
  static std::vector<std::byte> encoded(GgufType type, const std::vector<float>& values) {
    const WeightFormat& format = weight_format(type);
    const int64_t blocks = std::ssize(values) / format.block;
    std::vector<std::byte> bytes(static_cast<size_t>(blocks * format.block_bytes));
    encode_blocks(type, values.data(), blocks, bytes.data());
    return bytes;
  }
  static std::vector<float> decoded(GgufType type, const std::vector<std::byte>& bytes) {
    const WeightFormat& format = weight_format(type);
    const int64_t blocks = std::ssize(bytes) / format.block_bytes;
    std::vector<float> values(static_cast<size_t>(blocks * format.block));
    decode_blocks(type, bytes.data(), blocks, values.data());
    return values;
  }
  /// The root of the squared errors over that of the squared values.
  static double error_of(GgufType type, const std::vector<float>& values) {
    const std::vector<float> again = decoded(type, encoded(type, values));
    double errors = 0, squares = 0;
    for (size_t i = 0; i < values.size(); ++i)
      errors += std::pow(double{again[i]} - values[i], 2), squares += std::pow(values[i], 2);
    return std::sqrt(errors / squares);
  }

  const SafetensorsFile file{test::golden_root() + "/quant/gguf/encoded.safetensors"};
  const std::vector<float> values = read<float>(file, "values");
};

TEST_F(GgufEncode, types_of_one_scale_have_the_bytes_of_ggml) {
  for (const GgufType type : {GgufType::q4_0, GgufType::q4_1, GgufType::q5_0, GgufType::q5_1, GgufType::mxfp4}) {
    std::string name(name_of(type));
    for (char& letter : name) letter = static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
    EXPECT_EQ(encoded(type, values), read<std::byte>(file, name + ".bytes")) << name;
  }
}

TEST_F(GgufEncode, more_bits_err_less) {
  // A little above what these values have: a search that takes a worse scale exceeds it.
  const std::pair<GgufType, double> bounds[] = {
      {GgufType::q8_0, .0065}, {GgufType::q6_k, .022}, {GgufType::q5_k, .042},   {GgufType::q5_1, .045},
      {GgufType::q5_0, .052},  {GgufType::q4_k, .084}, {GgufType::iq4_nl, .088}, {GgufType::iq4_xs, .088},
      {GgufType::q4_1, .093},  {GgufType::q4_0, .105}, {GgufType::mxfp4, .13},   {GgufType::q3_k, .195},
      {GgufType::q2_k, .32}};
  std::vector<float> of_one_size;
  const std::vector<float> rows[] = {{values.begin() + 256, values.begin() + 512},
                                     {values.begin() + 7 * 256, values.end()}};
  for (const auto& row : rows) of_one_size.insert(of_one_size.end(), row.begin(), row.end());
  for (const auto& [type, bound] : bounds) {
    const double error = error_of(type, of_one_size);
    EXPECT_LT(error, bound) << name_of(type);
    EXPECT_GT(error, bound / 2) << name_of(type);
  }
}

TEST_F(GgufEncode, what_a_type_can_hold_comes_back) {
  for (const WeightFormat& format : weight_formats()) {
    if (!format.gguf || format.block == 1) continue;
    // Twice, as the first time may choose other scales.
    const GgufType type = *format.gguf;
    const std::vector<float> once = decoded(type, encoded(type, values));
    EXPECT_LT(error_of(type, once), 0.004) << format.name;
  }
}

TEST_F(GgufEncode, zeros_and_values_of_one_sign_keep_their_signs) {
  for (const WeightFormat& format : weight_formats()) {
    if (!format.gguf) continue;
    const GgufType type = *format.gguf;
    for (const float value : {0.0f, 3.0f, -3.0f}) {
      const std::vector<float> same(256, value);
      for (const float again : decoded(type, encoded(type, same)))
        ASSERT_NEAR(again, value, std::abs(value) * .02) << format.name;
    }
  }
}

}  // namespace
}  // namespace nought::gguf_encode_test
