#include "nought/cli/failure.h"

#include <cerrno>
#include <csignal>
#include <new>
#include <stdexcept>
#include <system_error>
#include <thread>

#include "support/temp_folder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "nought/base/error.h"
#include "nought/base/json.h"
#include "nought/io/mapped_file.h"
#include "nought/tensor/memory.h"

namespace nought::failure_test {
namespace {

using ::testing::StartsWith;

template <class E>
std::string described(E error) {
  return describe(std::make_exception_ptr(std::move(error)));
}

TEST(Failure, a_message_has_the_beginnings_of_long_values_and_whole_paths) {
  const std::string path = "/" + std::string(1000, 'p') + "/config.json";
  const std::string list = Json(std::vector<int>(100'000)).dump(), text = std::string(100'000, 'x');
  const auto size = [](const std::string& message) { return with_short_values(message).size(); };
  EXPECT_EQ(with_short_values("stage is 4, expected \"0\" to \"3\""), "stage is 4, expected \"0\" to \"3\"");
  const std::string cut = with_short_values(path + ": ids is " + list + ", expected an id");
  EXPECT_TRUE(cut.starts_with(path + ": ids is [0,0,0")) << cut;
  EXPECT_TRUE(cut.ends_with("0... expected an id")) << cut;
  EXPECT_EQ(with_short_values("a \"" + text + "\" b"), "a \"" + text.substr(0, 200) + "...\" b");
  EXPECT_LT(size("a \"" + text + " with spaces " + text + "\" b"), 300u);
  EXPECT_LT(size("the family " + text + " is not known"), 300u);
  EXPECT_LT(size("keys " + Json(std::vector<std::string>(50'000, "k")).dump() + " are not known"), 1100u);
  std::string words, lines;
  for (int i = 0; i < 10'000; ++i) words += "word /a ", lines += "line\n";
  EXPECT_LT(size("there is no " + words), 1300u) << "of what is not quoted, nothing tells where it ends";
  EXPECT_LT(size("there is no " + lines), 700u);
  EXPECT_LT(size("there is no " + lines + words + "\n" + text), 10'000u);
  EXPECT_EQ(with_short_values("\"" + std::string(199, 'x') + "\xC3\xA9y\""), "\"" + std::string(199, 'x') + "...\"");
}

TEST(Failure, an_error_says_its_message_and_what_is_no_error_of_ours_says_so) {
  EXPECT_EQ(described(ConfigError("stage must be 0, 1, 2 or 3")), "stage must be 0, 1, 2 or 3");
  EXPECT_EQ(described(std::runtime_error("oops")), "internal error: oops");
  EXPECT_EQ(described(std::bad_alloc()), "out of memory: the system refused an allocation");
  EXPECT_EQ(described(3), "internal error: an exception of an unknown type");
  EXPECT_EQ(describe(nullptr), "the program ended itself without an exception");
}

TEST(FailureDeathTest, a_message_is_one_line_on_stderr_behind_what_was_printed) {
  EXPECT_EXIT(
      {
        print_error("first\nsecond\n\n");
        _exit(0);
      },
      testing::ExitedWithCode(0), "^nought: error: first\n  second\n$");
}

TEST(FailureDeathTest, a_memory_error_is_one_line_and_an_indented_table) {
  const auto memory = Memory::create();
  memory->set_limit(1 << 20);
  const auto held = memory->allocate(1 << 19, Category::optimizer);
  EXPECT_EXIT(
      {
        try {
          memory->allocate(1 << 20, Category::activations);
        } catch (...) {
          print_error(describe(std::current_exception()));
        }
        _exit(0);
      },
      testing::ExitedWithCode(0),
      "^nought: error: the memory budget of 1.00 MiB does not hold another 1.00 MiB for activations: 512.0 KiB are in "
      "use\n(  [^\n]+\n)+$");
}

TEST(Failure, what_the_system_refuses_is_no_internal_error) {
  EXPECT_EQ(described(std::system_error(ENOSPC, std::generic_category(), "cannot write to file")),
            "cannot write to file: No space left on device");
  EXPECT_THAT(described(std::system_error(EAGAIN, std::generic_category())), StartsWith("the system refused a thread"));
}

TEST(FailureDeathTest, a_page_of_a_file_that_is_gone_names_the_file) {
  const test::TempFolder folder;
  const auto path = folder.write("00000.tokens", std::string(1 << 20, 'x'));
  const auto read_at = [&](size_t offset) {
    catch_lost_pages();
    const MappedFile file(path);
    std::filesystem::resize_file(path, 5000);
    const bool right = file.text()[offset] == 'x';
    _exit(right ? 3 : 4);
  };
  EXPECT_EXIT(read_at(4999), testing::ExitedWithCode(3), "^$") << "what nobody needs may be gone";
  std::filesystem::resize_file(path, 1 << 20);
  EXPECT_EXIT(
      read_at(50'000), testing::ExitedWithCode(1),
      "^nought: error: .*/00000.tokens: has become shorter while it is read: 5000 bytes, it had 1048576; put it "
      "back and start again\n$");
}

TEST(FailureDeathTest, a_bus_error_elsewhere_ends_the_process_as_before) {
  EXPECT_EXIT(
      {
        catch_lost_pages();
        raise(SIGBUS);
        _exit(3);
      },
      testing::KilledBySignal(SIGBUS), "");
}

TEST(FailureDeathTest, an_exception_that_nobody_caught_ends_the_process_with_its_line) {
  EXPECT_EXIT(
      {
        catch_failures_of_threads();
        std::thread([] { throw IoError("the disk is full"); }).join();
      },
      testing::ExitedWithCode(1), "^nought: error: the disk is full\n$");
}

}  // namespace
}  // namespace nought::failure_test
