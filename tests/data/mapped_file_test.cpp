#include "nought/io/mapped_file.h"

#include "support/temp_folder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/base/error.h"

namespace nought {
namespace {

TEST(MappedFile, has_the_bytes_of_the_file_from_a_page_on) {
  const test::TempFolder folder;
  const std::string bytes("ab\0c\xff", 5);
  const MappedFile file(folder.write("a", bytes));
  EXPECT_EQ(file.bytes(), bytes);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(file.bytes().data()) % 4096, 0u);
}

TEST(MappedFile, an_empty_file_has_no_bytes) {
  const test::TempFolder folder;
  EXPECT_TRUE(MappedFile(folder.write("a", "")).bytes().empty());
}

TEST(MappedFile, what_cannot_be_mapped_is_named) {
  const test::TempFolder folder;
  EXPECT_THAT(test::message_of<IoError>([&] { MappedFile(folder / "none"); }), testing::HasSubstr("none: cannot open"));
  EXPECT_THROW(MappedFile(folder.path()), IoError) << "a folder";
}

}  // namespace
}  // namespace nought
