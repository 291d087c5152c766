// The links between ranks that stand for hosts.
#include "nought/cli/host_links.h"

#include "support/size.h"
#include <gtest/gtest.h>

#include "nought/comm/thread.h"

namespace nought::host_links_test {
namespace {

NOUGHT_SIZE(medium);
TEST(HostLinks, are_measured_from_each_host_to_the_next) {
  for (const int hosts : {1, 2, 3}) {
    run_ranks(hosts, [&](Communicator& world, const Context& context) {
      const std::vector<HostLink> links = measure_links(world, context);
      ASSERT_EQ(links.size(), hosts == 1 ? 0 : hosts == 2 ? 1 : 3);
      for (const HostLink& link : links) {
        EXPECT_GT(link.seconds, 0);
        EXPECT_LT(link.seconds, 1);
        EXPECT_GT(link.bytes_per_second, 1e6);
      }
    });
  }
}

TEST(HostLinks, are_told_in_a_line) {
  const std::vector<HostLink> links = links_in(links_line({{1e-4, 2e9}, {3e-4, 1e9}}));
  ASSERT_EQ(links.size(), 2);
  EXPECT_EQ(links[0].seconds, 1e-4);
  EXPECT_EQ(links[1].bytes_per_second, 1e9);
  EXPECT_TRUE(links_in("mpirun says something").empty());
}

}  // namespace
}  // namespace nought::host_links_test
