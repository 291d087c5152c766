// Tests that run in parts: what the record holds, and the program that goes on where it stopped.
#include "cuda/record.h"

#include "support/message_of.h"
#include "support/run_program.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nought::test::record_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

void write_lines(const std::filesystem::path& path, const std::string& lines) { std::ofstream(path) << lines; }

TEST(CudaRecord, what_began_and_did_not_end_has_failed_and_does_not_run_again) {
  const TempFolder folder;
  write_lines(folder / "record", "began A.a\npassed A.a 0.5\nbegan A.b\nbegan A.c\nskipped A.c 0.1\n");
  const Record record(folder / "record");
  ASSERT_EQ(record.tests().size(), 3);
  EXPECT_TRUE(record.tests()[0].passed());
  EXPECT_EQ(record.tests()[0].seconds, 0.5);
  EXPECT_EQ(record.tests()[1].outcome, "did not end");
  EXPECT_FALSE(record.tests()[1].passed());
  EXPECT_TRUE(record.tests()[2].passed());
  EXPECT_EQ(record.without_done("A.*"), "A.*-A.a:A.b:A.c");
  EXPECT_EQ(record.without_done("A.*-A.d"), "A.*-A.d:A.a:A.b:A.c");
}

TEST(CudaRecord, a_file_of_something_else_is_refused) {
  const TempFolder folder;
  write_lines(folder / "record", "passed A.a 0.5\n");
  EXPECT_THAT(message_of<IoError>([&] { Record(folder / "record"); }), HasSubstr("ends no test that began"));
}

/// This program, on three of its tests.
Ended run_part(const TempFolder& folder, const std::string& more) {
  const std::string program = std::filesystem::read_symlink("/proc/self/exe");
  return run_program(
      fmt::format("{} --gtest_filter='CudaMemory.*' --record {} {}", program, (folder / "record").string(), more));
}

TEST(CudaRecord, each_part_goes_on_where_the_last_one_stopped_and_the_end_has_them_all) {
  const TempFolder folder;
  for (int part = 0; part < 2; ++part) {
    const Ended ended = run_part(folder, "--seconds 0");
    EXPECT_EQ(ended.exit_code, 75) << ended.out << ended.err;
    EXPECT_THAT(ended.out,
                AllOf(HasSubstr("CUDA driver"), HasSubstr("the time is over: 1 of"), Not(HasSubstr("TFLOP"))));
    EXPECT_EQ(Record(folder / "record").tests().size(), part + 1);
  }
  const Ended last = run_part(folder, "--seconds 0");
  EXPECT_EQ(last.exit_code, 0) << last.out << last.err;
  EXPECT_THAT(last.out, AllOf(HasSubstr("3 tests, 0 failed"), HasSubstr("attention, bf16, backward"),
                              HasSubstr("copy to the device, pinned")));
}

TEST(CudaRecord, a_test_that_ended_its_process_fails_the_whole) {
  const TempFolder folder;
  write_lines(folder / "record", "began CudaMemory.copies_from_and_to_pinned_memory_are_whole\n");
  const Ended ended = run_part(folder, "");
  EXPECT_EQ(ended.exit_code, 1) << ended.out << ended.err;
  EXPECT_THAT(ended.out, AllOf(HasSubstr("did not end"), HasSubstr("3 tests, 1 failed")));
}

TEST(CudaRecord, other_options_are_refused) {
  const TempFolder folder;
  const Ended ended = run_part(folder, "--seconds soon");
  EXPECT_EQ(ended.exit_code, 2);
  EXPECT_THAT(ended.err, HasSubstr("expected --record FILE or --seconds N"));
}

}  // namespace
}  // namespace nought::test::record_test
