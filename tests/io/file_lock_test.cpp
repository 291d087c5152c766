#include "nought/io/file_lock.h"

#include <cerrno>
#include <csignal>
#include <optional>

#include "support/other_process.h"
#include "support/recorded_calls.h"
#include "support/temp_folder.h"
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

namespace nought::file_lock_test {
namespace {

namespace fs = std::filesystem;
using test::OtherProcess;
using test::TempFolder;
using testing::IsEmpty;
using testing::MatchesRegex;
using State = FileLock::State;

TEST(FileLock, is_held_once_and_names_its_holder) {
  const TempFolder folder;
  const fs::path file = folder / "lock";
  EXPECT_EQ(FileLock::owner_of(file), std::nullopt) << "there is no file";
  std::optional<FileLock> first(std::in_place, file, "the first");
  EXPECT_EQ(first->state(), State::held);
  const FileLock second(file, "the second");
  EXPECT_EQ(second.state(), State::taken);
  EXPECT_EQ(second.owner(), "the first");
  EXPECT_EQ(FileLock::owner_of(file), "the first");
  first.reset();
  EXPECT_THAT(test::names_in(folder.path()), IsEmpty()) << "the file goes with the lock";
  EXPECT_EQ(FileLock(file, "the third").state(), State::held);
}

TEST(FileLock, ends_with_the_process_that_holds_it_however_that_ends) {
  const TempFolder folder;
  const fs::path file = folder / "lock";
  OtherProcess other([&] { return FileLock(file, this_process()); });
  const FileLock refused(file, "me");
  EXPECT_EQ(refused.state(), State::taken);
  EXPECT_THAT(refused.owner(), MatchesRegex(fmt::format("process {} on .+ since 20.*Z", other.id())));
  other.kill();
  EXPECT_TRUE(fs::exists(file));
  EXPECT_EQ(FileLock::owner_of(file), std::nullopt);
  EXPECT_EQ(FileLock(file, "me").state(), State::held);
}

TEST(FileLock, knows_that_its_file_was_removed_and_leaves_another_in_its_place_alone) {
  const TempFolder folder;
  const fs::path file = folder / "lock";
  {
    const FileLock lock(file, "me");
    EXPECT_TRUE(lock.in_place());
    fs::rename(file, folder / "moved");
    EXPECT_FALSE(lock.in_place());
    folder.write("lock", "another");
    EXPECT_FALSE(lock.in_place());
  }
  EXPECT_EQ(test::read_bytes(file), "another");
}

TEST(FileLock, is_held_where_its_owner_cannot_be_written_and_says_so) {
  const TempFolder folder;
  const auto before = std::signal(SIGXFSZ, SIG_IGN);
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
  const rlimit none{0, limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &none), 0);
  const FileLock lock(folder / "lock", "me");
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  std::signal(SIGXFSZ, before);
  EXPECT_EQ(lock.state(), FileLock::State::held);
  EXPECT_EQ(lock.reason(), "File too large");
  EXPECT_EQ(FileLock(folder / "other", "me").reason(), "");
}

TEST(FileLock, a_file_system_without_locks_is_told_with_its_reason) {
  const TempFolder folder;
  test::RecordedCalls recorded;
  recorded.fail_next("flock", ENOLCK);
  const FileLock lock(folder / "lock", "me");
  EXPECT_EQ(lock.state(), State::without);
  EXPECT_EQ(lock.reason(), "No locks available");
  EXPECT_EQ(FileLock(folder / "none/lock", "me").reason(), "No such file or directory");
  recorded.fail_next("flock", EINTR);
  EXPECT_EQ(FileLock(folder / "lock", "me").state(), State::held) << "a signal is no reason";
}

}  // namespace
}  // namespace nought::file_lock_test
