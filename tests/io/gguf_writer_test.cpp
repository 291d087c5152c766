// A GGUF file is written whole, each element once, or not at all. tests/train/gguf_test.cpp reads whole models back.
#include "nought/io/gguf_writer.h"

#include "support/message_of.h"
#include "support/temp_folder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nought::gguf_writer_test {
namespace {

using test::message_of;
using test::TempFolder;
using ::testing::HasSubstr;

std::vector<GgufTensor> two_tensors() {
  return {{.name = "a", .type = GgufType::f32, .shape = {2, 3}}, {.name = "b", .type = GgufType::q8_0, .shape = {64}}};
}

TEST(GgufWriter, tensors_have_the_bytes_of_their_types) {
  const std::vector<GgufTensor> tensors = two_tensors();
  EXPECT_EQ(tensors[0].bytes(), 24);
  EXPECT_EQ(tensors[1].bytes(), 2 * kQ8BlockBytes);
  EXPECT_EQ(name_of(GgufType::q8_0), "q8_0");
}

TEST(GgufWriter, no_file_is_left_that_lacks_elements) {
  const TempFolder folder;
  const std::vector<float> values(64, 1);
  const auto* const bytes = reinterpret_cast<const std::byte*>(values.data());
  {
    GgufWriter writer(folder / "part.gguf", {{"general.name", std::string("x")}}, two_tensors());
    writer.write(0, {0, 6}, DType::f32, bytes);
    EXPECT_THAT(message_of<IoError>([&] { writer.write(0, {5, 6}, DType::f32, bytes); }), HasSubstr("written twice"));
    EXPECT_THROW(writer.write(1, {0, 33}, DType::f32, bytes), IoError) << "no whole blocks";
    EXPECT_THROW(writer.finish(), IoError);
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "part.gguf"));
  GgufWriter writer(folder / "whole.gguf", {}, two_tensors());
  writer.write(0, {0, 6}, DType::f32, bytes);
  writer.write(1, {0, 64}, DType::f32, bytes);
  writer.finish();
  EXPECT_TRUE(std::filesystem::exists(folder / "whole.gguf"));
}

}  // namespace
}  // namespace nought::gguf_writer_test
