#include "nought/base/host.h"

#include <fstream>

#include <gtest/gtest.h>

namespace nought {
namespace {

TEST(Host, has_the_name_that_the_kernel_knows) {
  std::string name;
  std::getline(std::ifstream("/proc/sys/kernel/hostname"), name);
  EXPECT_EQ(host_name(), name.empty() ? "-" : name);
}

}  // namespace
}  // namespace nought
