// GGUF files are read as they are, and a damaged one is refused in one line.
#include "nought/io/gguf_file.h"

#include "support/golden_root.h"
#include "support/message_of.h"
#include "support/temp_folder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/io/gguf_writer.h"

namespace nought::gguf_file_test {
namespace {

using test::message_of;
using test::TempFolder;
using testing::ElementsAre;
using testing::HasSubstr;

std::string golden(const std::string& name) { return test::golden_root() + "/quant/gguf/" + name + ".gguf"; }

template <class T>
std::string bytes_of(T value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
}
std::string text_of(const std::string& text) { return bytes_of(uint64_t{text.size()}) + text; }

/// A file of these counts, metadata and tensors, with 64 bytes of data.
std::string file_of(uint64_t tensors, uint64_t fields, const std::string& rest, int64_t data = 64) {
  std::string file = "GGUF" + bytes_of(uint32_t{3}) + bytes_of(tensors) + bytes_of(fields) + rest;
  file.resize((file.size() + 31) / 32 * 32 + static_cast<size_t>(data));
  return file;
}
std::string tensor_of(const std::string& name, const std::vector<uint64_t>& dims, uint32_t type, uint64_t offset = 0) {
  std::string text = text_of(name) + bytes_of(static_cast<uint32_t>(dims.size()));
  for (const uint64_t dim : dims) text += bytes_of(dim);
  return text + bytes_of(type) + bytes_of(offset);
}
std::string refusal_of(const std::string& bytes) {
  const TempFolder folder;
  const auto path = folder.write("x.gguf", bytes);
  return message_of<IoError>([&] { const GgufFile file(path); });
}

TEST(GgufFile, what_llama_cpp_wrote_is_read) {
  const GgufFile file(golden("llama_q4_k_m"));
  EXPECT_EQ(*file.text("general.architecture"), "llama");
  EXPECT_EQ(file.integer("llama.embedding_length"), 256);
  EXPECT_FLOAT_EQ(static_cast<float>(*file.number("llama.rope.freq_base")), 10000);
  EXPECT_EQ(file.find("output.weight")->type, GgufType::q6_k);
  EXPECT_EQ(file.find("output.weight")->shape, (Shape{64, 256}));
  EXPECT_EQ(std::ssize(file.raw(*file.find("output.weight"))), 64 * 210);
  EXPECT_EQ(file.find("none"), nullptr);
  EXPECT_THAT(message_of<IoError>([&] { file.text("llama.embedding_length"); }), HasSubstr("is not text"));
}

TEST(GgufFile, all_files_of_a_split_are_read_from_the_first) {
  const TempFolder folder;
  for (const int i : {1, 2}) {
    GgufWriter writer(folder / fmt::format("m-0000{}-of-00002.gguf", i), {{"split.count", uint32_t{2}}},
                      {{.name = fmt::format("t{}", i), .type = GgufType::f32, .shape = {2}}});
    const std::array<float, 2> values{static_cast<float>(i), 7};
    writer.write(0, {0, 2}, DType::f32, reinterpret_cast<const std::byte*>(values.data()));
    writer.finish();
  }
  const GgufFile file(folder / "m-00001-of-00002.gguf");
  ASSERT_EQ(file.entries().size(), 2u);
  EXPECT_EQ(file.num_files(), 2u);
  float first = 0;
  std::memcpy(&first, file.raw(*file.find("t2")).data(), sizeof(first));
  EXPECT_EQ(first, 2);
  EXPECT_THAT(message_of<IoError>([&] { const GgufFile other(folder / "m-00002-of-00002.gguf"); }),
              HasSubstr("is one of a split of 2 files; open the first"));
  std::filesystem::remove(folder / "m-00002-of-00002.gguf");
  EXPECT_THAT(message_of<IoError>([&] { const GgufFile other(folder / "m-00001-of-00002.gguf"); }),
              HasSubstr("m-00002-of-00002.gguf: is missing"));
}

TEST(GgufFile, every_truncated_file_is_refused_in_one_line) {
  const std::string bytes = test::read_bytes(golden("qwen2_q8_0"));
  for (size_t size = 0; size < bytes.size(); size += size < 400 ? 7 : 4001) {
    const std::string refusal = refusal_of(bytes.substr(0, size));
    EXPECT_NE(refusal, "") << size;
    EXPECT_EQ(refusal.find('\n'), std::string::npos) << refusal;
  }
}

TEST(GgufFile, damaged_headers_are_refused_by_what_is_wrong) {
  EXPECT_THAT(refusal_of("GGML"), HasSubstr("does not begin with GGUF"));
  EXPECT_THAT(refusal_of("GGUF" + bytes_of(uint32_t{1}) + std::string(16, 0)), HasSubstr("version 1; 3 is read"));
  EXPECT_THAT(refusal_of(file_of(1ull << 60, 0, "")), HasSubstr("tensors, for which"));
  EXPECT_THAT(refusal_of(file_of(0, 1, bytes_of(uint64_t{1} << 40) + "abc")),
              HasSubstr("a key is said to have 1099511627776 bytes"));
  EXPECT_THAT(refusal_of(file_of(0, 1, text_of("k") + bytes_of(uint32_t{99}))), HasSubstr("k has type 99"));
  EXPECT_THAT(refusal_of(file_of(0, 1, text_of("k") + bytes_of(uint32_t{9}) + bytes_of(uint32_t{8}) + bytes_of(~0ull))),
              HasSubstr("elements of k, for which"));
  EXPECT_THAT(refusal_of(file_of(1, 0, tensor_of("t", {1ull << 40, 1ull << 40}, 0))),
              HasSubstr("tensor t has more elements than there are numbers: its dimensions overflow"));
  EXPECT_THAT(refusal_of(file_of(1, 0, tensor_of("t", {32, 3}, 17))),
              HasSubstr("tensor t has type iq2_xs, which is not"));
  EXPECT_THAT(refusal_of(file_of(1, 0, tensor_of("t", {32, 3}, 77))), HasSubstr("tensor t has type 77"));
  EXPECT_THAT(refusal_of(file_of(1, 0, tensor_of("t", {33}, 8))),
              HasSubstr("rows that are no multiple of 32, as q8_0"));
  EXPECT_THAT(refusal_of(file_of(1, 0, tensor_of("t", {32}, 0))), HasSubstr("ends at byte 128 of the data, 64 are"));
  EXPECT_THAT(refusal_of(file_of(1, 0, tensor_of("t", {1}, 0, ~0ull))), HasSubstr("its dimensions overflow"));
  EXPECT_THAT(refusal_of(file_of(1, 0, tensor_of("t", {1, 1, 1, 1, 1}, 0))), HasSubstr("has 5 dimensions"));
  EXPECT_THAT(refusal_of(file_of(2, 0, tensor_of("t", {1}, 0) + tensor_of("t", {1}, 0))), HasSubstr("is there twice"));
  EXPECT_EQ(refusal_of(file_of(1, 0, tensor_of("t", {16}, 0))), "");
}

}  // namespace
}  // namespace nought::gguf_file_test
