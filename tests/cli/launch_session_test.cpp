#include "nought/cli/launch_session.h"

#include <memory>

#include "support/known_paths.h"
#include "support/other_process.h"
#include "support/run_program.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nought::launch_session_test {
namespace {

namespace fs = std::filesystem;
using test::names_in;
using test::OtherProcess;
using test::TempFolder;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using testing::StartsWith;

LaunchSession::Roots roots_in(const TempFolder& folder) {
  fs::create_directories(folder / "tmp");
  fs::create_directories(folder / "shm");
  return {folder / "tmp", folder / "shm"};
}

TEST(LaunchSession, has_folders_that_name_its_process_and_go_with_it) {
  const TempFolder folder;
  const LaunchSession::Roots roots = roots_in(folder);
  {
    const LaunchSession session(roots);
    const std::string name = fmt::format("nought-{}-{}-", getuid(), getpid());
    EXPECT_THAT(names_in(roots.temporary), ElementsAre(StartsWith(name)));
    EXPECT_THAT(names_in(roots.shared), ElementsAre(StartsWith(name)));
    EXPECT_THAT(session.environment(),
                ElementsAre(StartsWith("OMPI_MCA_orte_tmpdir_base=" + (roots.temporary / name).string()),
                            StartsWith("OMPI_MCA_btl_vader_backing_directory=" + (roots.shared / name).string())));
    EXPECT_THAT(LaunchSession::remove_left(roots), IsEmpty());
  }
  EXPECT_THAT(names_in(roots.temporary), IsEmpty());
  EXPECT_THAT(names_in(roots.shared), IsEmpty());
}

TEST(LaunchSession, of_a_process_that_was_killed_is_removed_by_the_next_and_no_other) {
  const TempFolder folder;
  const LaunchSession::Roots roots = roots_in(folder);
  const OtherProcess lives([&] { return std::make_unique<LaunchSession>(roots); });
  OtherProcess dies([&] { return std::make_unique<LaunchSession>(roots); });
  folder.write(fmt::format("tmp/nought-{}-{}-somewhere/file", getuid() + 1, dies.id()), "named as another user's");
  folder.write(fmt::format("shm/nought-{}-{}", getuid(), dies.id()), "a file");
  folder.write("shm/vader_segment.host.0.1.0", "of another program");
  EXPECT_THAT(LaunchSession::remove_left(roots), IsEmpty());
  const auto pid = dies.id();
  dies.kill();
  EXPECT_THAT(LaunchSession::remove_left(roots),
              ElementsAre(AllOf(HasSubstr("/tmp/nought-"), HasSubstr(fmt::format("-{}-", pid))),
                          AllOf(HasSubstr("/shm/nought-"), HasSubstr(fmt::format("-{}-", pid)))));
  EXPECT_THAT(names_in(roots.temporary), SizeIs(2));
  EXPECT_THAT(names_in(roots.shared), SizeIs(3));
}

TEST(LaunchSession, a_folder_that_cannot_be_made_is_left_to_mpirun) {
  const TempFolder folder;
  const LaunchSession session({folder / "none", folder / "none"});
  EXPECT_THAT(session.environment(), IsEmpty());
}

TEST(LaunchSession, mpirun_keeps_its_files_there_and_nothing_is_left) {
  const TempFolder folder;
  const test::Ended ended = test::run_program(
      fmt::format("env TMPDIR={} {} sum --ranks 2", folder.path().string(), test::known_path("ranks")));
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.out, HasSubstr("rank 1 of 2 on mpi: sum 3, "));
  EXPECT_THAT(names_in(folder.path()), IsEmpty());
}

}  // namespace
}  // namespace nought::launch_session_test
