#include "nought/data/token_folder.h"

#include "support/temp_folder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/base/error.h"
#include "nought/base/json.h"

namespace nought::token_folder_test {
namespace {

namespace fs = std::filesystem;
using test::message_of;
using test::TempFolder;
using testing::ElementsAre;
using testing::HasSubstr;

TokenFolderIndex index_of(bool complete) {
  return {.complete = complete,
          .tokenizer = "bytes",
          .settings = "s",
          .inputs = {"a.txt", "b.txt"},
          .files = {{"00000.tokens", 10, 2, 9, 40}, {"00001.tokens", 5, 1, 5, 20}},
          .done = {.input = 1, .offset = 12, .line = 3, .hash = "abc"}};
}

TEST(TokenFolder, an_index_reads_back_as_it_was_written) {
  const TempFolder folder;
  EXPECT_FALSE(read_token_index(folder.path()).has_value());
  write_token_index(folder.path(), index_of(true));
  const auto read = read_token_index(folder.path());
  ASSERT_TRUE(read.has_value());
  EXPECT_TRUE(read->complete);
  EXPECT_THAT(read->inputs, ElementsAre("a.txt", "b.txt"));
  ASSERT_EQ(read->files.size(), 2u);
  EXPECT_EQ(read->files[1].name, "00001.tokens");
  EXPECT_EQ(read->files[0].targets, 9);
  EXPECT_EQ(read->done.offset, 12);
  EXPECT_EQ(read->done.hash, "abc");
}

TEST(TokenFolder, stands_for_its_files_once_it_is_complete) {
  const TempFolder folder;
  for (const char* file : {"made/00000.tokens", "made/00001.tokens", "made/left-over", "text.txt"})
    folder.write(file, "x");
  const std::vector<std::string> patterns{(folder / "text.txt").string(), (folder / "made").string()};
  write_token_index(folder / "made", index_of(true));
  EXPECT_THAT(expand_data_files(patterns),
              ElementsAre(folder / "made/00000.tokens", folder / "made/00001.tokens", folder / "text.txt"));
  write_token_index(folder / "made", index_of(false));
  EXPECT_THAT(message_of<ConfigError>([&] { expand_data_files(patterns); }), HasSubstr("made: is not complete"));
}

TEST(TokenFolder, files_that_several_patterns_match_are_found_once) {
  const TempFolder folder;
  folder.write("b.txt", "text"), folder.write("a.txt", "text");
  const std::vector<std::string> patterns{(folder / "b.txt").string(), (folder / "*.txt").string()};
  EXPECT_THAT(expand_data_files(patterns), ElementsAre(folder / "a.txt", folder / "b.txt"));
}

TEST(TokenFolder, any_other_folder_stands_for_the_text_files_below_it) {
  const TempFolder folder;
  folder.write("books/a.txt", "text"), folder.write("books/b/c.txt", "text"), folder.write("books/b/d.jsonl", "{}");
  folder.write("books/e.png", "\x89PNG"), folder.write("books/f.txt", std::string("a\0b", 3));
  const std::vector<std::string> patterns{(folder / "books").string()};
  const DataFiles found = find_data_files(patterns);
  EXPECT_THAT(found.files, ElementsAre(folder / "books/a.txt", folder / "books/b/c.txt", folder / "books/b/d.jsonl"));
  EXPECT_THAT(describe_left_out(found), HasSubstr("2 of 5 files in folders are no text and are left out: "));
  EXPECT_EQ(expand_data_files(patterns), found.files);
  folder.write("pictures/g.png", "\x89PNG");
  EXPECT_THAT(message_of<IoError>([&] { find_data_files(std::vector{(folder / "pictures").string()}); }),
              HasSubstr("none of the 1 files below this folder is text"));
}

TEST(TokenFolder, an_index_names_files_of_its_own_folder_alone) {
  const TempFolder folder;
  TokenFolderIndex index = index_of(true);
  for (const std::string& name :
       {std::string("../secret.tokens"), std::string("/etc/passwd"), std::string("a\0b", 3)}) {
    index.files[1].name = name;
    write_token_index(folder.path(), index);
    const std::vector<std::string> patterns{folder.path().string()};
    EXPECT_THAT(message_of<ConfigError>([&] { expand_data_files(patterns); }),
                HasSubstr("is not the name of a file in the same folder"));
  }
}

TEST(TokenFolder, an_index_without_a_format_is_of_the_first_version) {
  const TempFolder folder;
  write_token_index(folder.path(), index_of(true));
  Json json = read_json_file((folder / "index.json").string());
  EXPECT_EQ(json.at("format"), "nought-token-folder-1");
  json.erase("format");
  folder.write("index.json", json.dump());
  EXPECT_TRUE(read_token_index(folder.path())->complete);
}

TEST(TokenFolder, an_index_of_a_newer_version_is_refused_before_its_members_are_read) {
  const TempFolder folder;
  folder.write("index.json", "{\"format\": \"nought-token-folder-2\", \"a_new_member\": 1}");
  EXPECT_EQ(message_of<IoError>([&] { read_token_index(folder.path()); }),
            fmt::format("{}: its format is nought-token-folder-2, this program reads up to nought-token-folder-1: use "
                        "the version of nought that wrote it, or a newer one",
                        (folder / "index.json").string()));
}

TEST(TokenFolder, a_damaged_index_is_named) {
  const TempFolder folder;
  folder.write("index.json", "{\"complete\": 3}");
  EXPECT_THAT(message_of<ConfigError>([&] { read_token_index(folder.path()); }), HasSubstr("index.json"));
}

}  // namespace
}  // namespace nought::token_folder_test
