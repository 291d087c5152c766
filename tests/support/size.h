// How long a test takes, said where the test is. A test without a mark is small, or what its folder's CMakeLists.txt
// says.
//
//   small    at most about a tenth of a second on any machine: no sweep, no process, no clock. Runs under the
//   sanitizers, too. medium   runs in every run of the suite, but not under the sanitizers. long     minutes:
//   scripts/test-long.sh runs it.
//
//   NOUGHT_SIZE(medium);               the test below
//   TEST(Reducer, sums_are_those_of_one_rank_for_every_bucket_size) {...}
//
//   NOUGHT_FILE_SIZE(medium);          all tests of the file that have no mark of their own
//
// cmake/DiscoverTests.cmake makes entries of CTest of them, with the size as label.
#pragma once

#include <string>

#define NOUGHT_SIZE(size) NOUGHT_SIZE_MARK(size, __LINE__, __COUNTER__)
#define NOUGHT_FILE_SIZE(size) NOUGHT_SIZE_MARK(size, 0, __COUNTER__)

#define NOUGHT_SIZE_MARK(size, line, id) NOUGHT_SIZE_MARK_OF(size, line, id)
#define NOUGHT_SIZE_MARK_OF(size, line, id) \
  [[maybe_unused]] static const bool nought_size_mark_##id = ::nought::test::mark_size(#size, __FILE__, line)

namespace nought::test {

/// Marks the next test behind this line of the file; with line 0 all of the file.
bool mark_size(const char* size, const char* file, int line);

/// "SIZE SUITE.NAME" of each test of this program, one a line. The size of one without a mark is "unmarked".
std::string list_sizes();

/// The filter of GoogleTest without long tests, unless NOUGHT_LONG is set.
std::string without_long_tests(const std::string& filter);

}  // namespace nought::test
