#include "nought/io/files.h"

#include "support/temp_folder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "nought/base/error.h"

namespace nought::files_test {
namespace {

using test::message_of;
using test::TempFolder;
using testing::ElementsAre;
using testing::HasSubstr;

// What a pattern below the folder matches, relative to it.
std::vector<std::string> matches(const TempFolder& folder, const std::string& pattern) {
  std::vector<std::string> names;
  for (const auto& file : expand_glob((folder / pattern).string()))
    names.push_back(file.lexically_relative(folder.path()).string());
  return names;
}

class Glob : public testing::Test {
 protected:
  Glob() {
    for (const char* name : {"b.txt", "a.txt", "c.md", ".hidden.txt", "d/e.txt", "d/f/g.txt", "d/f/h.md", "d1/x1.txt",
                             "d1/x2.txt", ".git/y.txt"})
      folder_.write(name, "text");
  }
  TempFolder folder_;
};

TEST_F(Glob, matches_within_a_component_in_order_of_path) {
  EXPECT_THAT(matches(folder_, "*.txt"), ElementsAre("a.txt", "b.txt"));
  EXPECT_THAT(matches(folder_, "[!a].*"), ElementsAre("b.txt", "c.md"));
  EXPECT_THAT(matches(folder_, "?.md"), ElementsAre("c.md"));
  EXPECT_THAT(matches(folder_, "d*/*.txt"), ElementsAre("d/e.txt", "d1/x1.txt", "d1/x2.txt"));
  EXPECT_THAT(matches(folder_, "d1/x[2-9].txt"), ElementsAre("d1/x2.txt"));
  EXPECT_THAT(matches(folder_, ".h*"), ElementsAre(".hidden.txt"));
  EXPECT_THAT(matches(folder_, "d/../a.txt"), ElementsAre("a.txt"));
}

TEST_F(Glob, two_stars_stand_for_any_number_of_folders) {
  EXPECT_THAT(matches(folder_, "**/*.md"), ElementsAre("c.md", "d/f/h.md"));
  EXPECT_THAT(matches(folder_, "d/**"), ElementsAre("d/e.txt", "d/f/g.txt", "d/f/h.md"));
  EXPECT_THAT(matches(folder_, "**/**/f/*"), ElementsAre("d/f/g.txt", "d/f/h.md"));
  EXPECT_THAT(matches(folder_, "**/g.txt"), ElementsAre("d/f/g.txt"));
  EXPECT_EQ(matches(folder_, "**.txt"), matches(folder_, "**/*.txt"));
  EXPECT_THAT(matches(folder_, "d/**.md"), ElementsAre("d/f/h.md"));
}

TEST_F(Glob, follows_links_to_files_and_is_not_trapped_by_a_cycle) {
  std::filesystem::create_symlink(folder_ / "a.txt", folder_ / "d/link.txt");
  std::filesystem::create_symlink(folder_.path(), folder_ / "d/f/loop");
  std::filesystem::create_symlink(folder_ / "gone", folder_ / "d/dangling.txt");
  EXPECT_THAT(matches(folder_, "d/**/*.txt"), ElementsAre("d/e.txt", "d/f/g.txt", "d/link.txt"));
}

TEST_F(Glob, a_file_named_like_a_pattern_is_itself) {
  folder_.write("a[1].txt", "text");
  EXPECT_THAT(matches(folder_, "a[1].txt"), ElementsAre("a[1].txt"));
}

TEST_F(Glob, no_match_is_an_error_with_the_pattern) {
  EXPECT_THAT(message_of<IoError>([&] { matches(folder_, "*.csv"); }), HasSubstr("*.csv: no file matches"));
  EXPECT_THAT(message_of<IoError>([&] { matches(folder_, "z.txt"); }), HasSubstr("z.txt: no such file"));
  EXPECT_THAT(message_of<IoError>([&] { matches(folder_, "d"); }), HasSubstr("is a folder"));
  EXPECT_THAT(message_of<IoError>([&] { expand_glob(""); }), HasSubstr("no such file"));
}

TEST_F(Glob, text_is_read_whole_and_a_binary_file_is_refused) {
  const std::string text = "two\r\nlines \xff";
  EXPECT_EQ(read_text(folder_.write("t", text)), text);
  EXPECT_EQ(read_text(folder_.write("empty", "")), "");
  EXPECT_THAT(message_of<IoError>([&] { read_text(folder_.write("bin", std::string("ab\0c", 4))); }),
              HasSubstr("byte 0 at offset 2"));
  EXPECT_THAT(message_of<IoError>([&] { read_text(folder_ / "none"); }), HasSubstr("none: cannot read"));
}

TEST(Files, a_file_name_leads_nowhere_else) {
  for (const std::string name : {"a", "model-00001-of-00002.safetensors", "...", ".hidden", "a b"})
    EXPECT_TRUE(is_file_name(name)) << name;
  for (const std::string& name : {std::string(), std::string("."), std::string(".."), std::string("a/b"),
                                  std::string("/a"), std::string("a\nb"), std::string("a\0b", 3)})
    EXPECT_FALSE(is_file_name(name)) << name;
}

TEST(Files, what_was_printed_and_could_not_be_written_is_an_error) {
  std::FILE* full = std::fopen("/dev/full", "w");
  std::fputs("a line", full);
  EXPECT_THAT(message_of<IoError>([&] { flush_printed(full); }),
              testing::StrEq("standard output: cannot write: No space left on device"));
  EXPECT_THAT(message_of<IoError>([&] { flush_printed(full); }), HasSubstr("cannot write")) << "it stays lost";
  std::fclose(full);
  std::FILE* null = std::fopen("/dev/null", "w");
  std::fputs("a line", null);
  flush_printed(null);
  std::fclose(null);
}

}  // namespace
}  // namespace nought::files_test
