#include "nought/checkpoint/output_folder.h"

#include <cerrno>
#include <memory>

#include "support/other_process.h"
#include "support/recorded_calls.h"
#include "support/size.h"
#include "support/temp_folder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/base/error.h"

namespace nought::output_folder_test {
namespace {

NOUGHT_FILE_SIZE(small);

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using test::message_of;
using test::names_in;
using test::OtherProcess;
using test::TempFolder;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(OutputFolder, of_two_processes_the_second_is_told_who_has_it) {
  for (int pair = 0; pair < 6; ++pair) {
    const TempFolder folder;
    const fs::path out = folder / "out";
    OtherProcess first([&] { return std::make_unique<OutputFolder>(out); });
    const auto told = AllOf(
        HasSubstr("training.output_dir " + out.string() + " is in use: process " + std::to_string(first.id()) + " on "),
        HasSubstr("since 20"));
    EXPECT_THAT(message_of<ConfigError>([&] { OutputFolder(out, 0ms); }), told);
    EXPECT_THAT(message_of<ConfigError>([&] { OutputFolder::require_free(out, 0ms); }), told);
    first.kill();
    OutputFolder::require_free(out);
    const OutputFolder second(out);
    EXPECT_THAT(second.notes(), IsEmpty());
  }
}

TEST(OutputFolder, is_created_and_given_back_as_it_was) {
  const TempFolder folder;
  {
    const OutputFolder output(folder / "a/out");
    EXPECT_THAT(output.notes(), IsEmpty());
    EXPECT_THAT(names_in(folder / "a/out"), ElementsAre(".nought.lock"));
  }
  EXPECT_THAT(names_in(folder / "a/out"), IsEmpty());
  folder.write("file", "x");
  const OutputFolder none(folder / "file/out", 0ms);  // validate_run() says what is wrong
  EXPECT_THAT(none.notes(), IsEmpty());
}

TEST(OutputFolder, where_there_are_no_locks_the_run_goes_on_and_says_so) {
  const TempFolder folder;
  test::RecordedCalls recorded;
  recorded.fail_next("flock", ENOLCK);
  OutputFolder output(folder.path());
  EXPECT_THAT(output.notes(), ElementsAre(AllOf(HasSubstr("cannot be locked (No locks available)"),
                                                HasSubstr("nothing keeps a second run from writing there"))));
  EXPECT_EQ(output.keep(), "");
}

TEST(OutputFolder, is_tidied_up_when_it_is_taken) {
  const TempFolder folder;
  folder.write("out/checkpoint-4.partial/rank-00000.safetensors", "x");
  const OutputFolder output(folder / "out");
  EXPECT_THAT(output.notes(), ElementsAre(HasSubstr("removed what killed runs left in")));
  EXPECT_THAT(names_in(folder / "out"), ElementsAre(".nought.lock"));
}

TEST(OutputFolder, that_was_removed_or_moved_is_made_again_with_a_line) {
  const TempFolder folder;
  const fs::path out = folder / "out";
  OutputFolder output(out);
  EXPECT_EQ(output.keep(), "");
  fs::rename(out, folder / "moved");
  EXPECT_THAT(output.keep(), HasSubstr("out was removed or moved: the run goes on in a new one"));
  EXPECT_EQ(output.keep(), "") << "once";
  EXPECT_THAT(message_of<ConfigError>([&] { OutputFolder(out, 0ms); }), HasSubstr("is in use")) << "it is locked too";
  fs::remove_all(out);
  fs::create_directory(out);  // by somebody else: it may have the same number
  EXPECT_THAT(output.keep(), HasSubstr("removed or moved"));
  fs::remove(out / ".nought.lock");
  EXPECT_EQ(output.keep(), "");
  EXPECT_TRUE(fs::exists(out / ".nought.lock")) << "the lock alone comes back without a word";
}

TEST(OutputFolder, that_another_run_has_taken_meanwhile_ends_the_run) {
  const TempFolder folder;
  OutputFolder output(folder / "out");
  fs::rename(folder / "out", folder / "moved");
  const OtherProcess other([&] { return std::make_unique<OutputFolder>(folder / "out"); });
  EXPECT_THAT(message_of<ConfigError>([&] { output.keep(); }),
              HasSubstr("is in use: process " + std::to_string(other.id())));
}

}  // namespace
}  // namespace nought::output_folder_test
