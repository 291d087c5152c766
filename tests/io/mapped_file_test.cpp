#include "nought/io/mapped_file.h"

#include "support/temp_folder.h"
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/base/error.h"

namespace nought::mapped_file_test {
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

TEST(MappedFile, an_address_is_found_in_the_file_that_it_belongs_to) {
  TempFolder folder;
  const auto place_in = [&](const MappedFile& file, size_t offset) {
    const auto place = MappedFile::place_of(file.bytes().data() + offset);
    return place ? fmt::format("{} {} of {}", std::filesystem::path(place->path).filename().string(), place->offset,
                               place->size)
                 : "none";
  };
  const MappedFile first(folder.write("first", std::string(10'000, 'x')));
  const std::byte* freed = nullptr;
  {
    const MappedFile second(folder.write("second", std::string(7000, 'x')));
    EXPECT_EQ(place_in(first, 9999), "first 9999 of 10000");
    EXPECT_EQ(place_in(second, 0), "second 0 of 7000");
    freed = second.bytes().data();
  }
  EXPECT_FALSE(MappedFile::place_of(freed).has_value());
  EXPECT_FALSE(MappedFile::place_of(&folder).has_value());
  EXPECT_FALSE(MappedFile::place_of(nullptr).has_value());
  const MappedFile third(folder.write("third", "x"));  // in the place of the second
  EXPECT_EQ(place_in(third, 0), "third 0 of 1");
  EXPECT_EQ(place_in(first, 0), "first 0 of 10000");
}

TEST(MappedFile, what_is_no_regular_file_is_refused_by_name) {
  TempFolder folder;
  EXPECT_THAT(message_of<IoError>([&] { MappedFile{folder / "none"}; }), HasSubstr("none: cannot open: No such file"));
  EXPECT_THAT(message_of<IoError>([&] { MappedFile{folder.path()}; }), HasSubstr("not a regular file"));
  EXPECT_THAT(message_of<IoError>([&] { MappedFile{"/dev/null"}; }), HasSubstr("not a regular file"));
}

}  // namespace
}  // namespace nought::mapped_file_test
