// Archives of torch.save(), made by tests/golden/torch/make.py.
#include "nought/io/torch_archive.h"

#include "support/golden.h"
#include "support/message_of.h"
#include "support/size.h"
#include "support/temp_folder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/base/error.h"
#include "nought/io/pickle.h"

namespace nought::torch_archive_test {
namespace {

using test::message_of;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

std::string file_of(const std::string& name) { return test::golden_folder("torch") + "/" + name; }

TEST(TorchArchive, has_the_tensors_where_they_lie) {
  const SafetensorsFile file(file_of("state.bin"));
  const auto memory = Memory::create();
  EXPECT_THAT(file.names(), UnorderedElementsAre("whole", "tail", "half", "ids", "flag"));
  EXPECT_EQ(file.at("whole").shape, (Shape{3, 4}));
  EXPECT_THAT(file.load("tail", *memory).to_vector<float>(), ElementsAre(4, 4.5, 5, 5.5)) << "of a shared storage";
  EXPECT_EQ(file.at("half").dtype, DType::f16);
  EXPECT_THAT(file.load("ids", *memory).to_vector<int64_t>(), ElementsAre(7, -9));
  EXPECT_THAT(message_of<IoError>([&] { file.find("flag"); }), HasSubstr("torch.bool"));
  EXPECT_THAT(SafetensorsFile(file_of("nested.pt")).names(), ElementsAre("module.w"));
}

TEST(TorchArchive, is_told_from_safetensors_whose_header_is_as_long) {
  const auto begins = [](std::string_view text) { return std::as_bytes(std::span(text)); };
  using namespace std::string_view_literals;
  EXPECT_TRUE(is_torch_archive(begins("PK\x03\x04\0\0\0\0\0\0"sv)));
  EXPECT_FALSE(is_torch_archive(begins("PK\x03\x04\0\0\0\0{\""sv)));
  EXPECT_FALSE(is_old_torch_file(begins("\x80\x02\0\0\0\0\0\0{\""sv)));
}

std::string refusal(const std::string& name) {
  return message_of<IoError>([&] { SafetensorsFile file(file_of(name)); });
}

TEST(TorchArchive, runs_nothing_and_refuses_what_is_no_tensor_by_its_name) {
  EXPECT_THAT(refusal("command.pt"), HasSubstr("posix.system: not a part of tensors; nothing of it is run"));
  EXPECT_THAT(refusal("transposed.pt"), HasSubstr("\"w\" is a view whose elements are not in their order"));
  EXPECT_THAT(refusal("beyond.pt"), HasSubstr("\"w\" has elements 0 to 16 of a storage of 12"));
  EXPECT_THAT(refusal("compressed.pt"), HasSubstr("is compressed"));
}

/// A million entries take the sanitizers half a minute.
NOUGHT_SIZE(medium);
TEST(TorchArchive, bounds_what_a_small_file_unfolds_to) {
  EXPECT_THAT(refusal("many.pt"), HasSubstr("its dicts have more than 1048576 entries"))
      << "small, and 8^12 by its own";
}

/// At each eleventh byte; scripts/fuzz-foreign.sh tries the same readers for minutes.
TEST(TorchArchive, damage_anywhere_is_an_error_or_harmless) {
  const std::string whole = test::read_bytes(file_of("state.bin"));
  test::TempFolder folder;
  const auto try_to_read = [&](const std::string& bytes) {
    try {
      const auto memory = Memory::create();
      const SafetensorsFile file(folder.write("damaged.bin", bytes));
      for (const TensorEntry& entry : file.entries()) file.load(entry.name, *memory);
    } catch (const IoError&) {  // which says what is wrong
    }
  };
  for (size_t size = 0; size < whole.size(); size += 23) try_to_read(whole.substr(0, size));
  for (size_t at = 0; at < whole.size(); at += 11) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x5a);
    try_to_read(damaged);
  }
}

TEST(Pickle, may_contain_itself_and_is_bounded) {
  const auto read = [](std::string_view code) {
    return read_pickle(std::as_bytes(std::span(code)), "p", [](std::string_view) { return false; });
  };
  using namespace std::string_view_literals;
  const Pickle itself = read(
      "\x80\x02]q\x00h\x00"
      "a."sv);
  EXPECT_EQ(itself[itself.root].items.front(), itself.root);
  const Pickle values = read("\x80\x04(\x4b\x07J\xff\xff\xff\xff\x8a\x01\x80\x88N\x8c\x02hit."sv);
  const PickleValue& all = values[values.root];
  ASSERT_EQ(all.items.size(), 6U);
  EXPECT_EQ(values.item(all, 1).integer, -1);
  EXPECT_EQ(values.item(all, 2).integer, -128);
  EXPECT_EQ(values.item(all, 5).text, "hi");
  const auto refusal = [&](std::string_view code) { return message_of<IoError>([&] { read(code); }); };
  EXPECT_THAT(refusal("\x80\x06."sv), HasSubstr("protocol 6"));
  EXPECT_THAT(refusal("\x80\x02X\xff\xff\xff\x7f."sv), HasSubstr("bytes are announced"));
  EXPECT_THAT(refusal("\x80\x02h\x05."sv), HasSubstr("nothing was remembered as 5"));
  EXPECT_THAT(refusal("\x80\x02t."sv), HasSubstr("there is no mark"));
  EXPECT_THAT(refusal("\x80\x02i."sv), HasSubstr("opcode 0x69 is not read"));
  EXPECT_THAT(refusal("\x80\x02"sv), HasSubstr("bytes are announced, 0 follow"));
}

}  // namespace
}  // namespace nought::torch_archive_test
