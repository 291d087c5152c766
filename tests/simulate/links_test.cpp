// Collectives take what NCCL's took on one host, and over hosts what their links allow.
#include "nought/simulate/links.h"

#include "support/golden_root.h"
#include <gtest/gtest.h>

#include "nought/base/json.h"

namespace nought::links_test {
namespace {

Links links_of(Cluster cluster) { return {cluster, fitted_constants().at("h100")}; }

TEST(Links, the_sweep_of_nccl_on_eight_h100_is_met_within_15_percent) {
  const Json published = read_json_file(test::golden_root() + "/scale/published.json");
  const Links links = links_of(cluster_of("h100x8"));
  for (const Json& each : published["collectives"]["bytes_microseconds"]) {
    const double bytes = each[0], seconds = each[1].get<double>() * 1e-6;
    EXPECT_NEAR(links.all_reduce(bytes, {8, 1}) / seconds, 1, 0.15) << bytes << " bytes";
  }
}

TEST(Links, a_group_of_one_takes_no_time_and_more_bytes_never_take_less) {
  const Links links = links_of(cluster_of("h100x8"));
  EXPECT_EQ(links.all_reduce(1e9, {1, 8}), 0);
  EXPECT_EQ(links.to_experts(1e9, 8, {1, 8}), 0);
  for (const RankGroup group : {RankGroup{8, 1}, RankGroup{64, 1}, RankGroup{16, 8}})
    for (double bytes = 8; bytes < 1e10; bytes *= 1.5) {
      EXPECT_LE(links.all_reduce(bytes, group), links.all_reduce(1.5 * bytes, group));
      EXPECT_LE(links.all_gather(bytes, group), links.all_reduce(bytes, group));
    }
}

TEST(Links, a_group_over_hosts_uses_the_network_cards_of_all_its_members) {
  const Links links = links_of(cluster_of("h100x8"));
  constexpr double kLarge = 1e12;
  const double all_cards = links.all_gather(kLarge, {64, 1}), one_card = links.all_gather(kLarge, {8, 8});
  EXPECT_NEAR(one_card / all_cards, 8 * (7.0 / 8) / (63.0 / 64), 0.01);
}

TEST(Links, twice_the_network_takes_half_the_time) {
  Cluster cluster = cluster_of("h100x8");
  const double before = links_of(cluster).all_reduce(1e13, {16, 8});
  cluster.network.bandwidth *= 2;
  EXPECT_NEAR(links_of(cluster).all_reduce(1e13, {16, 8}) / before, 0.5, 1e-3);
}

}  // namespace
}  // namespace nought::links_test
