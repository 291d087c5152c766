#include <cerrno>
#include <cstring>

#include "support/recorded_calls.h"
#include "support/temp_folder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/base/error.h"
#include "nought/io/atomic_file.h"

namespace nought::atomic_file_calls_test {
namespace {

using test::message_of;
using test::read_bytes;
using test::RecordedCall;
using test::RecordedCalls;
using test::TempFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(AtomicFile, is_flushed_whole_before_it_gets_its_name_and_the_folder_after_that) {
  const TempFolder folder;
  const std::filesystem::path file = folder / "a.json", partial = folder / "a.json.partial";
  const RecordedCalls recorded;
  write_text_atomically(file, "all that belongs there");
  EXPECT_THAT(recorded.calls(), ElementsAre(RecordedCall{"fsync", partial, "all that belongs there"},
                                            RecordedCall{"rename", file}, RecordedCall{"fsync", folder.path()}));
}

TEST(AtomicFile, a_flush_or_rename_that_fails_leaves_the_old_file_and_nothing_else) {
  const TempFolder folder;
  const std::filesystem::path file = folder.write("a.json", "old");
  RecordedCalls recorded;
  recorded.fail_next("fsync", EIO);
  EXPECT_THAT(message_of<IoError>([&] { write_text_atomically(file, "new"); }),
              HasSubstr("a.json.partial: cannot flush to disk: Input/output error"));
  EXPECT_EQ(read_bytes(file), "old");
  recorded.fail_next("rename", EACCES);
  EXPECT_THAT(message_of<IoError>([&] { write_text_atomically(file, "new"); }),
              HasSubstr("a.json: cannot give the finished file its name: Permission denied"));
  EXPECT_EQ(read_bytes(file), "old");
  EXPECT_FALSE(std::filesystem::exists(folder / "a.json.partial"));
  write_text_atomically(file, "new");
  EXPECT_EQ(read_bytes(file), "new");
}

TEST(AtomicFile, a_folder_that_cannot_be_flushed_is_told) {
  const TempFolder folder;
  RecordedCalls recorded;
  for (const int error : {EIO, ENOSPC, EDQUOT, EROFS, ENOMEM}) {
    recorded.fail_next("fsync", error);
    EXPECT_EQ(message_of<IoError>([&] { sync_folder(folder.path()); }),
              fmt::format("{}: cannot flush the names of its files to disk: {}", folder.path().string(),
                          std::strerror(error)));
  }
  for (const int none : {EINVAL, ENOSYS, EOPNOTSUPP}) {  // of file systems that flush no folders
    recorded.fail_next("fsync", none);
    EXPECT_NO_THROW(sync_folder(folder.path()));
  }
  EXPECT_THAT(message_of<IoError>([&] { sync_folder(folder / "gone"); }), HasSubstr("No such file or directory"));
}

TEST(AtomicFile, a_flush_that_a_signal_interrupts_is_made_again) {
  const TempFolder folder;
  RecordedCalls recorded;
  recorded.fail_next("fsync", EINTR);
  write_text_atomically(folder / "a.json", "text");
  recorded.fail_next("fsync", EINTR);
  sync_folder(folder.path());
  EXPECT_EQ(read_bytes(folder / "a.json"), "text");
  EXPECT_THAT(recorded.calls(), ::testing::Contains(RecordedCall{"fsync", folder.path()}).Times(3));
}

TEST(AtomicFile, without_a_commit_nothing_remains) {
  const TempFolder folder;
  { const AtomicFile file(folder / "a", 10); }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

}  // namespace
}  // namespace nought::atomic_file_calls_test
