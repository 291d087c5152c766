#include "nought/io/safetensors.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <random>

#include "support/golden_root.h"
#include "support/size.h"
#include "support/temp_folder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/io/safetensors_writer.h"

namespace nought::safetensors_test {
namespace {

using test::message_of;
using test::read_bytes;
using test::TempFolder;
using testing::HasSubstr;

std::filesystem::path golden(std::string_view name) { return std::filesystem::path(test::golden_root()) / name; }

std::string length_prefix(uint64_t length) {
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, sizeof(length));
  return bytes;
}

// A file as the format wants it: length, header, data.
std::string file_of(const std::string& header, size_t data_bytes) {
  return length_prefix(header.size()) + header + std::string(data_bytes, '\x01');
}

std::string error_of(const TempFolder& folder, const std::string& bytes) {
  const auto file = folder.write("x.safetensors", bytes);
  const std::string message = message_of<IoError>([&] { SafetensorsFile{file}; });
  EXPECT_THAT(message, HasSubstr("x.safetensors"));
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  return message;
}

const std::string kGood = R"({"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}})";

struct Damage {
  std::string name, header;
  size_t data_bytes;
  std::string complaint;
};

class DamagedHeader : public testing::TestWithParam<Damage> {};

TEST_P(DamagedHeader, is_refused_with_what_is_wrong) {
  TempFolder folder;
  EXPECT_THAT(error_of(folder, file_of(GetParam().header, GetParam().data_bytes)), HasSubstr(GetParam().complaint));
}

std::string one(const std::string& body) { return R"({"a":{)" + body + "}}"; }

INSTANTIATE_TEST_SUITE_P(
    Safetensors, DamagedHeader,
    testing::Values(
        Damage{"not_json", R"({"a":)", 0, "not valid JSON"}, Damage{"empty_header", "", 0, "does not begin with '{'"},
        Damage{"array", "[1]", 0, "does not begin with '{'"},
        Damage{"trailing_garbage", kGood + "}", 16, "not valid JSON"},
        Damage{"deep_nesting", R"({"a":)" + std::string(100000, '[') + std::string(100000, ']') + "}", 0, "nests"},
        Damage{"invalid_utf8", "{\"\xff\":1}", 0, "not valid JSON"},
        Damage{"tensor_is_number", R"({"a":3})", 0, "expected an object"},
        Damage{"no_dtype", one(R"("shape":[2,2],"data_offsets":[0,16])"), 16, "no \"dtype\""},
        Damage{"dtype_is_number", one(R"("dtype":1,"shape":[2,2],"data_offsets":[0,16])"), 16, "no \"dtype\""},
        Damage{"unknown_dtype", one(R"("dtype":"F33","shape":[2,2],"data_offsets":[0,16])"), 16, "\"F33\""},
        Damage{"no_shape", one(R"("dtype":"F32","data_offsets":[0,16])"), 16, "no \"shape\""},
        Damage{"negative_extent", one(R"("dtype":"F32","shape":[-2,-2],"data_offsets":[0,16])"), 16, "extent -2"},
        Damage{"fractional_extent", one(R"("dtype":"F32","shape":[2.5,2],"data_offsets":[0,16])"), 16, "extent 2.5"},
        Damage{"too_many_dimensions", one(R"("dtype":"F32","shape":[1,1,1,1,1,2,2],"data_offsets":[0,16])"), 16,
               "7 dim"},
        Damage{"overflowing_shape", one(R"("dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,16])"), 16,
               "absurd shape"},
        Damage{"extent_beyond_64_bits", one(R"("dtype":"F32","shape":[99999999999999999999],"data_offsets":[0,16])"),
               16, "extent"},
        Damage{"no_offsets", one(R"("dtype":"F32","shape":[2,2])"), 16, "no \"data_offsets\""},
        Damage{"one_offset", one(R"("dtype":"F32","shape":[2,2],"data_offsets":[0])"), 16, "no \"data_offsets\""},
        Damage{"backward_offsets", one(R"("dtype":"F32","shape":[2,2],"data_offsets":[16,0])"), 16,
               "data_offsets [16,0]"},
        Damage{"negative_offset", one(R"("dtype":"F32","shape":[2,2],"data_offsets":[-16,0])"), 16, "data_offsets"},
        Damage{"offsets_past_the_end", kGood, 15, "truncated"},
        Damage{"shape_and_offsets_differ", one(R"("dtype":"F32","shape":[2,3],"data_offsets":[0,16])"), 16, "needs 24"},
        Damage{"bytes_behind", kGood, 17, "last 1 bytes"},
        Damage{"hole_in_front", one(R"("dtype":"F32","shape":[2,2],"data_offsets":[4,20])"), 20, "belong to no tensor"},
        Damage{
            "overlap",
            R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})",
            12, "overlaps"},
        Damage{
            "duplicate_tensor",
            R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"a":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}})",
            16, "\"a\" twice"},
        Damage{"duplicate_field", one(R"("dtype":"F32","dtype":"I32","shape":[2,2],"data_offsets":[0,16])"), 16,
               "\"dtype\" twice"},
        Damage{"metadata_is_number", R"({"__metadata__":{"format":1}})", 0, "metadata"}),
    [](const auto& info) { return info.param.name; });

TEST(Safetensors, damage_before_the_header_is_refused) {
  TempFolder folder;
  EXPECT_THAT(error_of(folder, ""), HasSubstr("0 bytes"));
  EXPECT_THAT(error_of(folder, "1234567"), HasSubstr("7 bytes"));
  EXPECT_THAT(error_of(folder, length_prefix(uint64_t{1} << 63) + kGood), HasSubstr("not a safetensors file"));
  EXPECT_THAT(error_of(folder, length_prefix(kGood.size() + 17) + kGood + std::string(16, ' ')),
              HasSubstr("the file is truncated"));
  EXPECT_THAT(message_of<IoError>([&] { SafetensorsFile(folder / "none.safetensors"); }), HasSubstr("cannot open"));
  EXPECT_THAT(message_of<IoError>([&] { SafetensorsFile{folder.path()}; }), HasSubstr("not a regular file"));
}

// Whatever bytes a file holds, it is refused with an IoError or it can be read to its end.
NOUGHT_SIZE(medium);
TEST(Safetensors, flipped_and_cut_bytes_never_do_more_than_throw) {
  TempFolder folder;
  auto memory = Memory::create();
  const std::string good = read_bytes(golden("loader/llama_gqa_bf16_sharded/model-00003-of-00003.safetensors"));
  uint64_t header = 0;
  std::memcpy(&header, good.data(), sizeof(header));
  std::mt19937 random(20240607);
  int refused = 0;
  for (int round = 0; round < 1500; ++round) {
    std::string bytes = good;
    if (round % 3 == 0) bytes.resize(random() % bytes.size());
    if (round % 3 != 0) {
      for (size_t flips = 1 + random() % 4; flips > 0; --flips)
        bytes[random() % (8 + header)] = static_cast<char>(random());
    }
    const auto file = folder.write("x.safetensors", bytes);
    try {
      const SafetensorsFile opened(file);
      for (const TensorEntry& entry : opened.entries()) opened.load(entry.name, *memory);
    } catch (const IoError& error) {
      ++refused;
      EXPECT_EQ(std::string_view(error.what()).find('\n'), std::string::npos);
    }
  }
  EXPECT_GT(refused, 1000);
}

TEST(Safetensors, a_dtype_that_is_not_supported_is_refused_only_when_asked_for) {
  TempFolder folder;
  const auto path = folder.write(
      "x.safetensors",
      file_of(
          R"({"mask":{"dtype":"BOOL","shape":[4],"data_offsets":[0,4]},"a":{"dtype":"U8","shape":[2],"data_offsets":[4,6]}})",
          6));
  const SafetensorsFile file(path);
  EXPECT_EQ(file.entries().size(), 1u);
  EXPECT_EQ(file.at("a").dtype, DType::u8);
  const std::string message = message_of<IoError>([&] { file.find("mask"); });
  EXPECT_THAT(message, HasSubstr("\"mask\" has dtype BOOL"));
}

TEST(Safetensors, every_dtype_survives_a_round_trip) {
  TempFolder folder;
  auto memory = Memory::create();
  std::vector<std::pair<std::string, Tensor>> tensors;
  for (DType dtype : {DType::u8, DType::f16, DType::f64, DType::i32, DType::bf16, DType::i64, DType::f32}) {
    Tensor tensor = Tensor::empty(*memory, {3, 5}, dtype, Category::parameters);
    visit_dtype(dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      for (int i = 0; i < 15; ++i) tensor.template data<T>()[i] = static_cast<T>(static_cast<float>(i) * 2);
    });
    tensors.emplace_back(std::string(name_of(dtype)), tensor);
  }
  tensors.emplace_back("scalar", Tensor::zeros(*memory, {}, DType::f32, Category::parameters));
  tensors.emplace_back("empty", Tensor::zeros(*memory, {0, 4}, DType::f32, Category::parameters));
  save_safetensors(folder / "x.safetensors", tensors);

  const SafetensorsFile file(folder / "x.safetensors");
  EXPECT_EQ(file.metadata().at("format"), "pt");
  for (const auto& [name, tensor] : tensors) {
    const Tensor loaded = file.load(name, *memory);
    EXPECT_EQ(loaded.dtype(), tensor.dtype()) << name;
    EXPECT_EQ(loaded.shape(), tensor.shape()) << name;
    EXPECT_EQ(loaded.to_vector<double>(), tensor.to_vector<double>()) << name;
    EXPECT_EQ(file.at(name).bytes.begin % size_of(tensor.dtype()), 0) << name << " is not aligned";
  }
  uint64_t header = 0;
  const std::string bytes = read_bytes(folder / "x.safetensors");
  std::memcpy(&header, bytes.data(), sizeof(header));
  EXPECT_EQ(header % 8, 0u);
}

NOUGHT_SIZE(medium);
TEST(Safetensors, a_file_of_very_many_tensors_is_written_and_read) {
  TempFolder folder;
  auto memory = Memory::create();
  std::vector<std::pair<std::string, Tensor>> tensors;  // in an order that is not that of their names
  for (int i = 0; i < 50000; ++i)
    tensors.emplace_back(std::to_string(i), Tensor::of<uint8_t>(*memory, {1}, std::vector{static_cast<uint8_t>(i)}));
  save_safetensors(folder / "x.safetensors", tensors);
  const SafetensorsFile file(folder / "x.safetensors");
  ASSERT_EQ(file.entries().size(), tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    EXPECT_EQ(file.entries()[i].name, tensors[i].first);
    EXPECT_EQ(file.raw(file.entries()[i])[0], tensors[i].second.raw()[0]);
  }
}

TEST(Safetensors, a_read_converts_and_touches_only_its_interval) {
  TempFolder folder;
  auto memory = Memory::create();
  const std::vector<float> values{1.5f, -2.25f, 1.0f / 3, 70000.0f, 0.0f, -0.1f};
  save_safetensors(folder / "x.safetensors",
                   {{"w", Tensor::of<float>(*memory, {2, 3}, values)},
                    {"ids", Tensor::of<int64_t>(*memory, {2}, std::vector<int64_t>{7, int64_t{1} << 40})}});
  const SafetensorsFile file(folder / "x.safetensors");

  Tensor part = Tensor::empty(*memory, {3}, DType::bf16, Category::parameters);
  file.read("w", {1, 4}, part);
  EXPECT_EQ(file.bytes_read(), 12);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(part.data<bf16_t>()[i].bits, bf16_t(values[static_cast<size_t>(i + 1)]).bits);
  Tensor halves = Tensor::empty(*memory, {3, 2}, DType::f16, Category::parameters);
  file.read("w", {0, 6}, halves);
  EXPECT_TRUE(std::isinf(static_cast<float>(halves.data<f16_t>()[3])));

  Tensor id = Tensor::empty(*memory, {1}, DType::i32, Category::parameters);
  file.read("ids", {0, 1}, id);
  EXPECT_EQ(id.item(), 7);
  EXPECT_THAT(message_of<IoError>([&] { file.read("ids", {1, 2}, id); }), HasSubstr("i32 cannot hold"));
  EXPECT_THAT(message_of<IoError>([&] { file.read("w", {0, 1}, id); }), HasSubstr("does not convert"));
  EXPECT_THAT(message_of<ShapeError>([&] { file.read("w", {0, 2}, part); }), HasSubstr("do not fill"));
  EXPECT_THAT(message_of<ShapeError>([&] { file.read("w", {4, 7}, part); }), HasSubstr("leave tensor"));
  EXPECT_THAT(message_of<IoError>([&] { file.at("idz"); }), HasSubstr("did you mean \"ids\"?"));
}

TEST(Safetensors, a_double_rounds_once_to_sixteen_bits) {
  TempFolder folder;
  auto memory = Memory::create();
  const double above_half = 1.0 + 0x1p-8 + 0x1p-40;  // rounding to fp32 first would make a tie, and that even
  save_safetensors(folder / "x.safetensors",
                   {{"d", Tensor::of<double>(*memory, {2}, std::vector<double>{above_half, -above_half})}});
  Tensor rounded = Tensor::empty(*memory, {2}, DType::bf16, Category::parameters);
  SafetensorsFile(folder / "x.safetensors").read("d", {0, 2}, rounded);
  EXPECT_EQ(rounded.to_vector<float>(), (std::vector<float>{1.0078125f, -1.0078125f}));
}

// OCP 8-bit Floating Point Specification 1.0, tables 1 and 2.
double value_of(int exponent_bits, int mantissa_bits, int code) {
  const int bias = (1 << (exponent_bits - 1)) - 1, exponent = (code & 0x7F) >> mantissa_bits;
  const double fraction = std::ldexp(code & ((1 << mantissa_bits) - 1), -mantissa_bits), sign = code < 128 ? 1 : -1;
  return sign * (exponent == 0 ? std::ldexp(fraction, 1 - bias) : std::ldexp(1 + fraction, exponent - bias));
}

TEST(Safetensors, eight_bit_floats_are_read_exactly_into_every_float_dtype) {
  TempFolder folder;
  auto memory = Memory::create();
  std::string bytes = file_of(
      R"({"e4m3":{"dtype":"F8_E4M3","shape":[16,16],"data_offsets":[0,256]},"e5m2":{"dtype":"F8_E5M2","shape":[256],"data_offsets":[256,512]}})",
      512);
  for (size_t i = 0; i < 512; ++i) bytes[bytes.size() - 512 + i] = static_cast<char>(i % 256);
  const SafetensorsFile file(folder.write("x.safetensors", bytes));
  EXPECT_EQ(file.at("e4m3").dtype, DType::bf16);
  for (DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16}) {
    const Tensor e4m3 = Tensor::empty(*memory, {256}, dtype, Category::workspace);
    const Tensor e5m2 = Tensor::empty(*memory, {255}, dtype, Category::workspace);
    file.read("e4m3", {0, 256}, e4m3);
    file.read("e5m2", {1, 256}, e5m2);
    const std::vector<double> four = e4m3.to_vector<double>(), five = e5m2.to_vector<double>();
    for (int code = 0; code < 256; ++code) {
      const double x = four[static_cast<size_t>(code)];
      if ((code & 0x7F) == 0x7F) {
        EXPECT_TRUE(std::isnan(x)) << code;
      } else {
        EXPECT_EQ(x, value_of(4, 3, code)) << code;
      }
      if (code == 0) continue;
      const double y = five[static_cast<size_t>(code - 1)];
      const int low = code & 0x7F;
      if (low < 0x7C) {
        EXPECT_EQ(y, value_of(5, 2, code)) << code;
      } else if (low == 0x7C) {
        EXPECT_EQ(y, code < 128 ? INFINITY : -INFINITY);
      } else {
        EXPECT_TRUE(std::isnan(y)) << code;
      }
    }
  }
  EXPECT_EQ(file.bytes_read(), 4 * (256 + 255));
  EXPECT_EQ(file.load("e5m2", *memory).dtype(), DType::bf16);
  const Tensor ids = Tensor::empty(*memory, {256}, DType::i32, Category::workspace);
  EXPECT_THAT(message_of<IoError>([&] { file.read("e4m3", {0, 256}, ids); }), HasSubstr("do not convert to i32"));
}

/// How many bytes this process holds of the pages of a file that it maps.
int64_t resident_bytes(const std::filesystem::path& file) {
  std::ifstream maps("/proc/self/smaps");
  int64_t total = 0;
  bool ours = false;
  for (std::string line; std::getline(maps, line);) {
    if (line.find('-') < line.find(' ')) ours = line.ends_with(file.string());
    if (ours && line.starts_with("Rss:")) total += 1024 * std::stoll(line.substr(4));
  }
  return total;
}

NOUGHT_SIZE(medium);
TEST(Safetensors, a_file_that_was_read_is_not_held_in_memory) {
  TempFolder folder;
  auto memory = Memory::create();
  const int64_t numel = 12 << 20;
  save_safetensors(folder / "x.safetensors",
                   {{"w", Tensor::zeros(*memory, {numel}, DType::bf16, Category::parameters)}});
  const SafetensorsFile file(folder / "x.safetensors");
  const std::span<const std::byte> raw = file.raw(file.at("w"));
  EXPECT_EQ(std::count(raw.begin(), raw.end(), std::byte{0}), 2 * numel);
  EXPECT_GT(resident_bytes(file.path()), 2 * numel) << "the measure sees what is mapped";
  file.load("w", *memory);
  EXPECT_LT(resident_bytes(file.path()), int64_t{1} << 20);
}

}  // namespace
}  // namespace nought::safetensors_test
