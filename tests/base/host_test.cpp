#include "nought/base/host.h"

#include <fstream>

#include "support/environment.h"
#include <gtest/gtest.h>

namespace nought::host_test {
namespace {

TEST(Host, has_the_name_that_the_kernel_knows) {
  std::string name;
  std::getline(std::ifstream("/proc/sys/kernel/hostname"), name);
  EXPECT_EQ(host_name(), name.empty() ? "-" : name);
}

TEST(Host, has_as_many_ranks_as_the_launcher_says) {
  const test::Environment mpirun{{"LOCAL_WORLD_SIZE", ""}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "8"}};
  EXPECT_EQ(launched_on_host(), 8);
  const test::Environment torchrun{{"LOCAL_WORLD_SIZE", "2"}};
  EXPECT_EQ(launched_on_host(), 2) << "whoever sets it says how ranks lie";
  const test::Environment nobody{
      {"LOCAL_WORLD_SIZE", "none"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", ""}, {"MPI_LOCALNRANKS", ""}};
  EXPECT_EQ(launched_on_host(), std::nullopt);
}

}  // namespace
}  // namespace nought::host_test
