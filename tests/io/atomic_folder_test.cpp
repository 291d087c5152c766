#include "nought/io/atomic_folder.h"

#include <cerrno>

#include "support/recorded_calls.h"
#include "support/temp_folder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/base/error.h"

namespace nought::atomic_folder_test {
namespace {

namespace fs = std::filesystem;
using test::message_of;
using test::names_in;
using test::RecordedCall;
using test::RecordedCalls;
using test::TempFolder;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(AtomicFolder, has_its_name_only_when_it_is_published) {
  TempFolder folder;
  begin_folder(folder / "a/b");
  folder.write("a/b.partial/x", "1");
  EXPECT_FALSE(fs::exists(folder / "a/b"));
  publish_folder(folder / "a/b");
  EXPECT_THAT(names_in(folder / "a"), ElementsAre("b"));
  EXPECT_THAT(names_in(folder / "a/b"), ElementsAre("x"));
}

TEST(AtomicFolder, replaces_one_of_the_same_name_and_begins_empty_after_an_interruption) {
  TempFolder folder;
  folder.write("a/old", "1");
  folder.write("a.partial/of_a_save_that_was_killed", "1");
  folder.write("a.old/of_another", "1");
  begin_folder(folder / "a");
  folder.write("a.partial/new", "2");
  EXPECT_THAT(names_in(folder / "a"), ElementsAre("old"));
  publish_folder(folder / "a");
  EXPECT_THAT(names_in(folder.path()), ElementsAre("a"));
  EXPECT_THAT(names_in(folder / "a"), ElementsAre("new"));
}

/// A folder "a" with the file "old", and a partial one with the file "new" beside it.
void begin_replacing(const TempFolder& folder) {
  folder.write("a/old", "1");
  begin_folder(folder / "a");
  folder.write("a.partial/new", "2");
}

std::vector<RecordedCall> calls_of_publishing(const TempFolder& folder, const std::string& failing = "",
                                              int error = 0) {
  begin_replacing(folder);
  RecordedCalls recorded;
  if (error != 0) recorded.fail_next(failing, error);
  publish_folder(folder / "a");
  return recorded.calls();
}

TEST(AtomicFolder, one_of_the_same_name_changes_places_with_it_in_one_step) {
  const TempFolder folder;
  EXPECT_THAT(calls_of_publishing(folder),
              ElementsAre(RecordedCall{"fsync", folder / "a.partial"}, RecordedCall{"exchange", folder / "a"},
                          RecordedCall{"fsync", folder.path()}, RecordedCall{"remove", folder / "a.partial"}))
      << "its name is never without a folder";
  EXPECT_THAT(names_in(folder.path()), ElementsAre("a"));
  EXPECT_THAT(names_in(folder / "a"), ElementsAre("new"));
}

TEST(AtomicFolder, without_an_exchange_the_old_one_steps_aside) {
  for (const int error : {EINVAL, ENOSYS, EOPNOTSUPP}) {
    const TempFolder folder;
    EXPECT_THAT(calls_of_publishing(folder, "exchange", error),
                ElementsAre(RecordedCall{"fsync", folder / "a.partial"}, RecordedCall{"exchange", folder / "a"},
                            RecordedCall{"rename", folder / "a.old"}, RecordedCall{"rename", folder / "a"},
                            RecordedCall{"fsync", folder.path()}, RecordedCall{"remove", folder / "a.old"}));
    EXPECT_THAT(names_in(folder.path()), ElementsAre("a"));
    EXPECT_THAT(names_in(folder / "a"), ElementsAre("new"));
  }
}

TEST(AtomicFolder, an_exchange_that_fails_leaves_the_old_one) {
  const TempFolder folder;
  EXPECT_THAT(message_of<IoError>([&] { calls_of_publishing(folder, "exchange", EIO); }),
              AllOf(HasSubstr((folder / "a").string()), HasSubstr("Input/output error")));
  EXPECT_THAT(names_in(folder / "a"), ElementsAre("old"));
  EXPECT_THAT(names_in(folder / "a.partial"), ElementsAre("new"));
}

TEST(AtomicFolder, a_flush_that_fails_leaves_the_old_one) {
  const TempFolder folder;
  EXPECT_THAT(message_of<IoError>([&] { calls_of_publishing(folder, "fsync", EIO); }),
              HasSubstr("cannot flush the names of its files to disk: Input/output error"));
  EXPECT_THAT(names_in(folder / "a"), ElementsAre("old"));
  const TempFolder other;
  calls_of_publishing(other, "fsync", EINVAL);  // a file system that flushes no folders
  EXPECT_THAT(names_in(other / "a"), ElementsAre("new"));
}

TEST(AtomicFolder, what_cannot_be_written_is_named) {
  TempFolder folder;
  folder.write("file", "x");
  EXPECT_THAT(message_of<IoError>([&] { begin_folder(folder / "file/a"); }), HasSubstr("file/a.partial"));
  folder.write("never_begun/x", "1");
  EXPECT_THAT(message_of<IoError>([&] { publish_folder(folder / "never_begun"); }), HasSubstr("never_begun.partial"));
  EXPECT_THAT(names_in(folder / "never_begun"), ElementsAre("x"));
}

}  // namespace
}  // namespace nought::atomic_folder_test
