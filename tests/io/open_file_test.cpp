// An open file beside the name that it had.
#include "nought/io/open_file.h"

#include "support/temp_folder.h"
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace nought::open_file_test {
namespace {

TEST(OpenFile, is_known_from_one_that_took_its_name) {
  const test::TempFolder folder;
  folder.write("a", "first");
  const int file = ::open((folder / "a").c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_GE(file, 0);
  EXPECT_TRUE(is_named(file, folder / "a"));
  std::filesystem::rename(folder / "a", folder / "b");
  EXPECT_FALSE(is_named(file, folder / "a"));
  EXPECT_TRUE(is_named(file, folder / "b"));
  folder.write("a", "second");
  EXPECT_FALSE(is_named(file, folder / "a"));
  std::filesystem::remove(folder / "b");
  EXPECT_EQ(bytes_in(file, folder / "b"), "first");
  EXPECT_EQ(bytes_in(file, folder / "b", 3), "fir");
  ::close(file);
}

}  // namespace
}  // namespace nought::open_file_test
