// The program of the tests of a folder: GoogleTest's, which knows the sizes of its tests.
//
//   test_zero               its small and medium tests; with NOUGHT_LONG in the environment the long ones, too
//   test_zero --list_sizes  "SIZE SUITE.NAME" of each test
#include <cstdio>
#include <cstring>

#include "support/size.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

int main(int argc, char** argv) {
  ::testing::InitGoogleMock(&argc, argv);
  if (argc == 2 && std::strcmp(argv[1], "--list_sizes") == 0) {
    std::fputs(nought::test::list_sizes().c_str(), stdout);
    return 0;
  }
  GTEST_FLAG_SET(filter, nought::test::without_long_tests(GTEST_FLAG_GET(filter)));
  return RUN_ALL_TESTS();
}
