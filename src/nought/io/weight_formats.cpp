#include "nought/io/weight_formats.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "nought/base/error.h"
#include "nought/io/convert.h"

namespace nought {

namespace {

constexpr WeightFormat of_blocks(GgufType type, std::string_view name, int bits, int64_t block, int64_t bytes,
                                 CodeTable codes, ScaleKind scales, OffsetKind offset) {
  return {name, bits, block, bytes, CodeOrder::blocks, codes, scales, offset, type};
}

constexpr CodeTable kNumber = CodeTable::number, kNatural = CodeTable::natural;
constexpr ScaleKind kNone = ScaleKind::none, kStored = ScaleKind::stored, kQuantized = ScaleKind::quantized;

constexpr WeightFormat kFormats[] = {
    of_blocks(GgufType::f32, "f32", 32, 1, 4, kNumber, kNone, OffsetKind::none),
    of_blocks(GgufType::f16, "f16", 16, 1, 2, kNumber, kNone, OffsetKind::none),
    of_blocks(GgufType::bf16, "bf16", 16, 1, 2, kNumber, kNone, OffsetKind::none),
    of_blocks(GgufType::q4_0, "q4_0", 4, 32, 18, CodeTable::biased, kStored, OffsetKind::none),
    of_blocks(GgufType::q4_1, "q4_1", 4, 32, 20, kNatural, kStored, OffsetKind::minimum),
    of_blocks(GgufType::q5_0, "q5_0", 5, 32, 22, CodeTable::biased, kStored, OffsetKind::none),
    of_blocks(GgufType::q5_1, "q5_1", 5, 32, 24, kNatural, kStored, OffsetKind::minimum),
    of_blocks(GgufType::q8_0, "q8_0", 8, kQ8Block, kQ8BlockBytes, CodeTable::int8, kStored, OffsetKind::none),
    of_blocks(GgufType::q2_k, "q2_k", 2, 256, 84, kNatural, kQuantized, OffsetKind::minimum),
    of_blocks(GgufType::q3_k, "q3_k", 3, 256, 110, CodeTable::biased, kQuantized, OffsetKind::none),
    of_blocks(GgufType::q4_k, "q4_k", 4, 256, 144, kNatural, kQuantized, OffsetKind::minimum),
    of_blocks(GgufType::q5_k, "q5_k", 5, 256, 176, kNatural, kQuantized, OffsetKind::minimum),
    of_blocks(GgufType::q6_k, "q6_k", 6, 256, 210, CodeTable::biased, kQuantized, OffsetKind::none),
    of_blocks(GgufType::iq4_nl, "iq4_nl", 4, 32, 18, CodeTable::iq4, kStored, OffsetKind::none),
    of_blocks(GgufType::iq4_xs, "iq4_xs", 4, 256, 136, CodeTable::iq4, kQuantized, OffsetKind::none),
    of_blocks(GgufType::mxfp4, "mxfp4", 4, 32, 17, CodeTable::e2m1, ScaleKind::e8m0, OffsetKind::none),
    // Folders.
    {"gptq", 0, 0, 0, CodeOrder::down_words, kNatural, kStored, OffsetKind::zero_point},
    {"awq", 4, 0, 0, CodeOrder::awq, kNatural, kStored, OffsetKind::zero_point},
    {"pack-quantized", 0, 0, 0, CodeOrder::rows, CodeTable::biased, kStored, OffsetKind::zero_point},
    {"int-quantized", 8, 0, 0, CodeOrder::rows, CodeTable::int8, kStored, OffsetKind::zero_point},
    {"float-quantized", 8, 0, 0, CodeOrder::rows, CodeTable::e4m3, kStored, OffsetKind::none},
    {"nvfp4-pack-quantized", 4, 16, 0, CodeOrder::rows, CodeTable::e2m1, kStored, OffsetKind::none},
    {"mxfp4-pack-quantized", 4, 32, 0, CodeOrder::rows, CodeTable::e2m1, ScaleKind::e8m0, OffsetKind::none},
    {"bnb-int8", 8, 0, 0, CodeOrder::rows, CodeTable::int8, kStored, OffsetKind::none},
    {"bnb-nf4", 4, 0, 0, CodeOrder::flat, CodeTable::nf4, kQuantized, OffsetKind::none},
    {"bnb-fp4", 4, 0, 0, CodeOrder::flat, CodeTable::fp4, kQuantized, OffsetKind::none},
};

struct TypeName {
  uint32_t number;
  std::string_view name;
};
constexpr TypeName kOtherTypes[] = {{4, "q4_2"},    {5, "q4_3"},     {9, "q8_1"},   {15, "q8_k"},  {16, "iq2_xxs"},
                                    {17, "iq2_xs"}, {18, "iq3_xxs"}, {19, "iq1_s"}, {21, "iq3_s"}, {22, "iq2_s"},
                                    {24, "i8"},     {25, "i16"},     {26, "i32"},   {27, "i64"},   {28, "f64"},
                                    {29, "iq1_m"},  {34, "tq1_0"},   {35, "tq2_0"}, {40, "nvfp4"}, {41, "q1_0"}};

constexpr float kNf4[] = {-1,
                          -0.6961928009986877f,
                          -0.5250730514526367f,
                          -0.39491748809814453f,
                          -0.28444138169288635f,
                          -0.18477343022823334f,
                          -0.09105003625154495f,
                          0,
                          0.07958029955625534f,
                          0.16093020141124725f,
                          0.24611230194568634f,
                          0.33791524171829224f,
                          0.44070982933044434f,
                          0.5626170039176941f,
                          0.7229568362236023f,
                          1};
constexpr float kFp4Twelfths[] = {0, .0625f, 8, 12, 4, 6, 2, 3};

}  // namespace

std::span<const WeightFormat> weight_formats() { return kFormats; }

const WeightFormat& weight_format(std::string_view name) {
  const auto* found = std::find_if(std::begin(kFormats), std::end(kFormats),
                                   [&](const WeightFormat& each) { return each.name == name; });
  require<ConfigError>(found != std::end(kFormats), "there is no format of weights \"{}\"", name);
  return *found;
}

const WeightFormat* find_gguf_type(uint32_t number) {
  const auto* found = std::find_if(std::begin(kFormats), std::end(kFormats), [&](const WeightFormat& each) {
    return each.gguf && static_cast<uint32_t>(*each.gguf) == number;
  });
  return found == std::end(kFormats) ? nullptr : found;
}

const WeightFormat& weight_format(GgufType type) { return *find_gguf_type(static_cast<uint32_t>(type)); }

DType plain_dtype(GgufType type) {
  return type == GgufType::f16 ? DType::f16 : type == GgufType::bf16 ? DType::bf16 : DType::f32;
}

std::string_view gguf_type_name(uint32_t number) {
  if (const WeightFormat* known = find_gguf_type(number)) return known->name;
  for (const TypeName& each : kOtherTypes)
    if (each.number == number) return each.name;
  return "";
}

std::string_view name_of(GgufType type) { return weight_format(type).name; }

float e8m0_value(uint8_t code) {
  if (code == 255) return std::numeric_limits<float>::quiet_NaN();
  return std::bit_cast<float>(code == 0 ? uint32_t{1} << 22 : uint32_t{code} << 23);  // 2^-127 is subnormal
}

std::array<float, 256> code_values(CodeTable table, int bits) {
  std::array<float, 256> values{};
  for (size_t code = 0; code < values.size(); ++code) {
    const auto byte = static_cast<uint8_t>(code);
    float& value = values[code];
    switch (table) {
      case CodeTable::number:
      case CodeTable::iq4:
        break;  // GGUF's blocks alone have them
      case CodeTable::natural:
        value = static_cast<float>(byte);
        break;
      case CodeTable::int8:
        value = static_cast<float>(static_cast<int8_t>(byte));
        break;
      case CodeTable::biased:
        value = static_cast<float>(int{byte} - (1 << (bits - 1)));
        break;
      case CodeTable::e2m1:
        value = kE2m1[code & 15];
        break;
      case CodeTable::e4m3:
        value = decode(Float8::e4m3, byte);
        break;
      case CodeTable::nf4:
        value = kNf4[code & 15];
        break;
      case CodeTable::fp4:
        value = kFp4Twelfths[code & 7] / 12 * ((code & 8) != 0 ? -1 : 1);
        break;
    }
  }
  return values;
}

}  // namespace nought
