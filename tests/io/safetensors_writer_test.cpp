#include "nought/io/safetensors_writer.h"

#include "support/counting.h"
#include "support/temp_folder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nought::safetensors_writer_test {
namespace {

using test::counting;
using test::message_of;
using test::names_in;
using test::read_bytes;
using test::TempFolder;
using testing::HasSubstr;

TEST(SafetensorsWriter, intervals_in_any_order_make_the_same_file) {
  TempFolder folder;
  auto memory = Memory::create();
  const std::vector<TensorSpec> specs{{"w", DType::f32, {10, 10}}, {"v", DType::bf16, {7}}};
  const auto write = [&](const char* name, std::vector<Interval> parts) {
    SafetensorsWriter writer(folder / name, specs);
    for (const Interval& part : parts) writer.write("w", part, counting(*memory, part.begin, part.end));
    writer.write("v", counting(*memory, 0, 7));  // fp32, converted
    writer.finish();
    return read_bytes(folder / name);
  };
  const std::string whole = write("a", {{0, 100}});
  EXPECT_EQ(write("b", {{0, 30}, {30, 31}, {31, 100}}), whole);
  EXPECT_EQ(write("c", {{60, 100}, {0, 20}, {40, 60}, {20, 40}}), whole);
  EXPECT_EQ(write("d", {{50, 50}, {50, 100}, {0, 10}, {20, 50}, {10, 20}}), whole);
  const SafetensorsFile file(folder / "a");
  EXPECT_EQ(file.load("v", *memory).to_vector<float>(), (std::vector<float>{0, 1, 2, 3, 4, 5, 6}));
}

TEST(SafetensorsWriter, a_missing_or_repeated_element_is_an_error) {
  TempFolder folder;
  auto memory = Memory::create();
  SafetensorsWriter writer(folder / "x", {{"w", DType::f32, {100}}});
  writer.write("w", {10, 40}, counting(*memory, 10, 40));
  writer.write("w", {50, 100}, counting(*memory, 50, 100));
  for (Interval twice : {Interval{0, 11}, {39, 41}, {20, 30}, {0, 100}, {49, 51}, {10, 40}, {99, 100}}) {
    EXPECT_THAT(message_of<IoError>([&] { writer.write("w", twice, counting(*memory, twice.begin, twice.end)); }),
                HasSubstr("written twice"));
  }
  EXPECT_THAT(message_of<IoError>([&] { writer.finish(); }), HasSubstr("only 80 of 100 elements"));
  EXPECT_THAT(message_of<IoError>([&] {
                writer.write("x", {0, 1}, counting(*memory, 0, 1));
              }),
              HasSubstr("not declared"));
  EXPECT_THAT(message_of<ShapeError>([&] {
                writer.write("w", {0, 2}, counting(*memory, 0, 1));
              }),
              HasSubstr("does not fill"));
  EXPECT_THAT(message_of<IoError>([&] {
                SafetensorsWriter(folder / "y", {{"w", DType::f32, {1}}, {"w", DType::f32, {1}}});
              }),
              HasSubstr("declared twice"));
}

TEST(SafetensorsWriter, an_unfinished_file_leaves_the_old_one) {
  TempFolder folder;
  auto memory = Memory::create();
  folder.write("x", "old");
  {
    SafetensorsWriter writer(folder / "x", {{"w", DType::f32, {4}}});
    writer.write("w", counting(*memory, 0, 4));
    EXPECT_EQ(read_bytes(folder / "x"), "old");
  }
  EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{"x"});
  EXPECT_EQ(read_bytes(folder / "x"), "old");
  save_safetensors(folder / "x", {{"w", counting(*memory, 0, 4)}});
  EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{"x"});
  EXPECT_EQ(SafetensorsFile(folder / "x").load("w", *memory).to_vector<int>(), (std::vector<int>{0, 1, 2, 3}));
  EXPECT_THAT(message_of<IoError>([&] { save_safetensors(folder / "none/x", {}); }), HasSubstr("cannot create"));
}

}  // namespace
}  // namespace nought::safetensors_writer_test
