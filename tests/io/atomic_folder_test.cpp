#include "nought/io/atomic_folder.h"

#include "support/temp_folder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/base/error.h"

namespace nought {
namespace {

namespace fs = std::filesystem;
using test::message_of;
using test::names_in;
using test::TempFolder;
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

TEST(AtomicFolder, what_cannot_be_written_is_named) {
  TempFolder folder;
  folder.write("file", "x");
  EXPECT_THAT(message_of<IoError>([&] { begin_folder(folder / "file/a"); }), HasSubstr("file/a.partial"));
  folder.write("never_begun/x", "1");
  EXPECT_THAT(message_of<IoError>([&] { publish_folder(folder / "never_begun"); }), HasSubstr("never_begun.partial"));
  EXPECT_THAT(names_in(folder / "never_begun"), ElementsAre("x"));
}

}  // namespace
}  // namespace nought
