// Two runs of one output folder, from the outside: the second is told who has it, however it is started.
#include "support/known_paths.h"
#include "support/run_file.h"
#include "support/run_program.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nought::overlap_test {
namespace {

using test::TempFolder;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

/// Runs `first` until it trains, then the others all at once. They leave out.I, err.I and code.I in the folder.
test::Ended overlap(const TempFolder& folder, const std::string& first, const std::vector<std::string>& others) {
  std::string script = fmt::format(": >$0/log; {} >$0/log 2>&1 & first=$!; ", first);
  script += "until grep -q ^step $0/log; do kill -0 $first || break; sleep 0.05; done; others=; ";
  for (size_t i = 0; i < others.size(); ++i)
    script += fmt::format("{{ {0} >$0/out.{1} 2>$0/err.{1}; echo $? >$0/code.{1}; }} & others=\"$others $!\"; ",
                          others[i], i);
  script += "wait $others; kill -TERM $first; wait $first; code=$?; cat $0/log; exit $code";
  folder.write("script", script);
  return test::run_program(fmt::format("bash -c \"$(cat {0}/script)\" {0}", folder.path().string()));
}

/// Whoever holds the folder, and however the second one is started.
TEST(Overlap, pairs_of_runs_in_one_output_folder_are_refused_by_name) {
  const TempFolder folder;
  const std::string train =
      fmt::format("{} train {}", test::known_path("nought"), test::write_small_run(folder, 1'000'000).string());
  const std::string job =
      "env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun -q --oversubscribe -n 2 ";
  const std::vector<std::string> ways{train, train + " --ranks 2 --overwrite", job + train};
  for (const auto& [first_way, others] :
       {std::pair(train, ways), std::pair(train + " --ranks 2", std::vector{train})}) {
    SCOPED_TRACE(first_way);
    const test::Ended first = overlap(folder, first_way, others);
    EXPECT_EQ(first.exit_code, 143) << first.out << first.err;
    for (size_t i = 0; i < others.size(); ++i) {
      EXPECT_NE(test::read_bytes(folder / fmt::format("code.{}", i)), "0\n") << i;
      EXPECT_THAT(
          test::read_bytes(folder / fmt::format("err.{}", i)),
          AllOf(HasSubstr("nought: error: training.output_dir " + (folder / "out").string() + " is in use: process "),
                HasSubstr("trains into it")))
          << i;
    }
    EXPECT_FALSE(std::filesystem::exists(folder / "out/.nought.lock"));
    std::filesystem::remove_all(folder / "out");
  }
}

TEST(Overlap, a_run_whose_output_folder_is_moved_says_so_and_goes_on) {
  const TempFolder folder;
  const std::string train = fmt::format("{} train {} --set training.logging_steps=1", test::known_path("nought"),
                                        test::write_small_run(folder, 1'000'000).string());
  const test::Ended ended = overlap(
      folder, train,
      {"eval 'mv $0/out $0/moved; until [ $(wc -l <$0/out/metrics.jsonl) -gt 2 ]; do sleep 0.1; done' 2>/dev/null"});
  EXPECT_EQ(ended.exit_code, 143) << ended.out;
  EXPECT_THAT(ended.out, HasSubstr("note: training.output_dir " + (folder / "out").string() + " was removed or moved"));
  const std::string moved = test::read_bytes(folder / "moved/metrics.jsonl");
  EXPECT_THAT(test::read_bytes(folder / "out/metrics.jsonl"), StartsWith(moved.substr(0, moved.find('\n')))) << "whole";
}

}  // namespace
}  // namespace nought::overlap_test
