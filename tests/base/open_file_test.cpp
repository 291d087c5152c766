// An open file beside the name that it had.
#include "nought/base/open_file.h"

#include <fstream>
#include <thread>

#include "support/message_of.h"
#include "support/temp_folder.h"
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "nought/base/error.h"

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

TEST(OpenFile, bytes_come_of_pipes_and_of_files_that_say_no_size_and_refusals_have_a_reason) {
  const test::TempFolder folder;
  const std::string text(100'000, 'x');
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  std::thread writer([&] { std::ofstream(folder / "pipe") << text; });
  EXPECT_EQ(bytes_if_there(folder / "pipe"), text);
  writer.join();
  EXPECT_THAT(system_text("/proc/self/status"), testing::HasSubstr("Pid:"));
  EXPECT_EQ(system_text("/proc/no such file"), "");
  for (const std::filesystem::path& absent : {folder / "none", folder / "pipe/none", folder / std::string(1000, 'n')})
    EXPECT_EQ(bytes_if_there(absent), std::nullopt);
  EXPECT_EQ(test::message_of<IoError>([&] { bytes_if_there(folder.path()); }),
            folder.path().string() + ": cannot read: Is a directory");
}

TEST(OpenFile, a_folder_is_listed_or_the_reason_is_told) {
  const test::TempFolder folder;
  folder.write("a", "");
  folder.write("b/c", "");
  EXPECT_EQ(entries_of(folder.path()).size(), 2u);
  EXPECT_EQ(test::message_of<IoError>([&] { entries_of(folder / "none"); }),
            (folder / "none").string() + ": cannot be listed: No such file or directory");
}

}  // namespace
}  // namespace nought::open_file_test
