#include "nought/io/mapped_file.h"

#include "support/temp_folder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/base/error.h"

namespace nought {
namespace {

using test::message_of;
using test::TempFolder;
using testing::HasSubstr;

TEST(MappedFile, holds_the_bytes_of_the_file) {
  TempFolder folder;
  const MappedFile file(folder.write("x", "four"));
  EXPECT_EQ(file.text(), "four");
  ASSERT_EQ(file.bytes().size(), 4u);
  EXPECT_EQ(file.bytes()[0], std::byte{'f'});
  EXPECT_TRUE(MappedFile(folder.write("empty", "")).text().empty());
}

TEST(MappedFile, released_bytes_are_read_again) {
  TempFolder folder;
  const std::string text(3 * 4096 + 5, 'x');
  const MappedFile file(folder.write("x", text));
  EXPECT_EQ(file.text(), text);
  file.release({100, 2 * 4096});
  file.release({0, static_cast<int64_t>(text.size())});
  EXPECT_EQ(file.text(), text);
}

TEST(MappedFile, what_is_no_regular_file_is_refused_by_name) {
  TempFolder folder;
  EXPECT_THAT(message_of<IoError>([&] { MappedFile{folder / "none"}; }), HasSubstr("none: cannot open: No such file"));
  EXPECT_THAT(message_of<IoError>([&] { MappedFile{folder.path()}; }), HasSubstr("not a regular file"));
  EXPECT_THAT(message_of<IoError>([&] { MappedFile{"/dev/null"}; }), HasSubstr("not a regular file"));
}

}  // namespace
}  // namespace nought
