#include "nought/io/atomic_file.h"

#include <array>

#include "support/temp_folder.h"
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "nought/base/error.h"

namespace nought::atomic_file_test {
namespace {

namespace fs = std::filesystem;
using test::message_of;
using test::read_bytes;
using test::TempFolder;
using testing::HasSubstr;

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

TEST(AtomicFile, has_its_name_when_it_is_committed_and_the_old_file_stays_until_then) {
  const TempFolder folder;
  const fs::path path = folder.write("a", "old");
  {
    AtomicFile file(path, 4);
    file.write(2, bytes_of("cd"));
    file.write(0, bytes_of("ab"));
    EXPECT_EQ(read_bytes(path), "old");
    file.commit();
    EXPECT_EQ(read_bytes(path), "abcd");
    EXPECT_THROW(file.commit(), IoError) << "once";
    EXPECT_THROW(file.write(0, bytes_of("x")), IoError);
  }
  EXPECT_EQ(read_bytes(path), "abcd");
  EXPECT_FALSE(fs::exists(folder / "a.partial"));
}

TEST(AtomicFile, without_a_commit_nothing_remains) {
  const TempFolder folder;
  {
    AtomicFile file(folder / "a", 4);
    AtomicFile moved(std::move(file));
    moved.write(0, bytes_of("ab"));
    EXPECT_TRUE(fs::exists(folder / "a.partial"));
  }
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST(AtomicFile, what_cannot_be_made_or_named_is_told_with_its_path) {
  const TempFolder folder;
  EXPECT_THAT(message_of<IoError>([&] { AtomicFile(folder / "none/a", 1); }), HasSubstr("none/a.partial"));
  fs::create_directories(folder / "taken/inside");
  AtomicFile file(folder / "taken", 1);
  EXPECT_THAT(message_of<IoError>([&] { file.commit(); }), HasSubstr("taken"));
  EXPECT_FALSE(fs::exists(folder / "taken.partial")) << "and what was written goes";
}

TEST(AtomicFile, text_is_written_whole) {
  const TempFolder folder;
  write_text_atomically(folder / "t", "hello\n");
  EXPECT_EQ(read_bytes(folder / "t"), "hello\n");
  write_text_atomically(folder / "t", "");
  EXPECT_EQ(read_bytes(folder / "t"), "");
}

TEST(AtomicFile, a_link_stays_and_what_it_leads_to_is_replaced) {
  const TempFolder folder;
  fs::create_directory(folder / "there");
  folder.write("there/a", "old");
  fs::create_symlink("there/a", folder / "link");
  write_text_atomically(folder / "link", "new");
  EXPECT_TRUE(fs::is_symlink(folder / "link"));
  EXPECT_EQ(read_bytes(folder / "there/a"), "new");
}

TEST(AtomicFile, a_pipe_gets_the_text_and_is_never_replaced) {
  const TempFolder folder;
  const fs::path pipe = folder / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  fs::create_symlink(pipe, folder / "link");
  const int reader = ::open(pipe.c_str(), O_RDWR | O_NONBLOCK);
  ASSERT_GE(reader, 0);
  write_text_atomically(pipe, "hello, ");
  write_text_atomically(folder / "link", "pipe");
  write_text_atomically("/proc/self/fd/" + std::to_string(reader), "!");
  EXPECT_THAT(message_of<IoError>([&] { AtomicFile(pipe, 1); }), HasSubstr("pipe: not a file"));
  std::array<char, 64> text = {};
  EXPECT_EQ(::read(reader, text.data(), text.size()), 12);
  ::close(reader);
  EXPECT_STREQ(text.data(), "hello, pipe!");
  EXPECT_TRUE(fs::is_fifo(pipe) && fs::is_symlink(folder / "link"));
}

TEST(AtomicFile, text_for_an_open_file_lies_where_the_file_stands_and_what_is_written_next_comes_behind_it) {
  const TempFolder folder;
  const int file = ::open((folder / "out").c_str(), O_RDWR | O_CREAT, 0644);
  ASSERT_GE(file, 0);
  ASSERT_EQ(::write(file, "before, ", 8), 8);
  write_text_atomically("/dev/fd/" + std::to_string(file), "text, ");
  write_text_atomically("/proc/self/fd/" + std::to_string(file), "again, ");
  ASSERT_EQ(::write(file, "after", 5), 5);
  ::close(file);
  EXPECT_EQ(read_bytes(folder / "out"), "before, text, again, after");
}

}  // namespace
}  // namespace nought::atomic_file_test
