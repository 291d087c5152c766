#include "nought/io/append_file.h"

#include <csignal>

#include "support/temp_folder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "nought/base/error.h"

namespace nought::append_file_test {
namespace {

namespace fs = std::filesystem;
using test::message_of;
using test::read_bytes;
using test::TempFolder;
using testing::HasSubstr;

TEST(AppendFile, begins_with_what_it_is_given_and_grows_on_disk_at_once) {
  const TempFolder folder;
  const fs::path path = folder.write("a", "of an earlier run");
  AppendFile file(path, "1\n");
  file.append("2\n");
  EXPECT_EQ(read_bytes(path), "1\n2\n");
  AppendFile moved(std::move(file));
  moved.append("3\n");
  EXPECT_EQ(read_bytes(path), "1\n2\n3\n");
}

TEST(AppendFile, is_whole_again_after_it_was_removed_or_moved_or_replaced_with_its_folder_or_alone) {
  const TempFolder folder;
  const fs::path path = folder / "out/a";
  fs::create_directory(folder / "out");
  AppendFile file(path, "1\n");
  fs::remove(path);
  file.append("2\n");
  EXPECT_EQ(read_bytes(path), "1\n2\n");
  fs::rename(folder / "out", folder / "moved");
  file.append("3\n");
  EXPECT_EQ(read_bytes(path), "1\n2\n3\n");
  EXPECT_EQ(read_bytes(folder / "moved/a"), "1\n2\n") << "what was moved is left alone";
  fs::remove_all(folder / "out");
  file.append("4\n");
  fs::rename(path, folder / "b");
  folder.write("out/a", "another");
  file.append("5\n");
  EXPECT_EQ(read_bytes(path), "1\n2\n3\n4\n5\n");
}

TEST(AppendFile, what_cannot_be_written_is_named) {
  const TempFolder folder;
  EXPECT_THAT(message_of<IoError>([&] { AppendFile(folder / "none/a", ""); }), HasSubstr("none/a"));
  AppendFile file(folder / "a", "1\n");
  fs::remove(folder / "a");
  fs::create_directory(folder / "a");
  EXPECT_THAT(message_of<IoError>([&] { file.append("2\n"); }), HasSubstr((folder / "a").string()));
  EXPECT_THROW(AppendFile().append("1"), IoError);
  EXPECT_THROW(AppendFile().sync(), IoError);
}

/// While it lives, no file grows beyond so many bytes, as if the disk were full there.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) {
    handler_ = std::signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit now{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &now);
  }
  ~FullDisk() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;

 private:
  rlimit before_{};
  void (*handler_)(int) = nullptr;
};

TEST(AppendFile, keeps_no_part_of_what_a_disk_did_not_take_whole) {
  const TempFolder folder;
  AppendFile file(folder / "a", "1\n");
  {
    const FullDisk full(6);
    EXPECT_THAT(message_of<IoError>([&] { file.append("23456789\n"); }), HasSubstr("cannot write"));
    EXPECT_EQ(read_bytes(folder / "a"), "1\n");
    file.append("23\n");
  }
  file.append("4\n");
  file.sync();
  EXPECT_EQ(read_bytes(folder / "a"), "1\n23\n4\n");
}

}  // namespace
}  // namespace nought::append_file_test
