// Clusters have the rates of their data sheets or of a file, and a file that says too little or nonsense is refused.
#include "nought/simulate/cluster.h"

#include "support/message_of.h"
#include "support/temp_folder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/base/error.h"

namespace nought::cluster_test {
namespace {

using testing::HasSubstr;

std::string error_of(const std::string& name_or_file) {
  return test::message_of<ConfigError>([&] { cluster_of(name_or_file); });
}

TEST(Cluster, clusters_have_names_and_others_are_refused_with_what_there_is) {
  for (const char* name : {"a100x8", "a100-40x8", "h100x8", "h800x8", "h200x8", "b200x8", "gb200x72", "gb300x72"})
    EXPECT_NO_THROW(require_complete(cluster_of(name), name));
  EXPECT_EQ(cluster_of("gb200x72").domain(), 72);
  EXPECT_THAT(error_of("h101x8"), HasSubstr("--cluster h101x8: expected a100x8, "));
  EXPECT_THAT(error_of("h101x8"), HasSubstr("did you mean"));
}

class ClusterFile : public testing::Test {
 protected:
  std::string error_with(const char* key, const Json& value) const {
    Json json = to_json(cluster_of("h100x8"));
    json[Json::json_pointer(key)] = value;
    return error_of(folder_.write("mine.json", json.dump()).string());
  }
  test::TempFolder folder_;
};

TEST_F(ClusterFile, a_file_has_the_rates_of_any_cluster) {
  Json json = to_json(cluster_of("h100x8"));
  json["network"] = {{"bandwidth", 80e9}, {"per", "host"}};
  json.erase("name");
  const Cluster cluster = cluster_of(folder_.write("mine.json", json.dump()).string());
  EXPECT_EQ(cluster.network_per_rank(), 10e9);
  EXPECT_EQ(cluster.name, "mine");
}

TEST_F(ClusterFile, what_is_wrong_is_said_in_one_line) {
  EXPECT_THAT(error_with("/flops/bf16", 0), HasSubstr("flops.bf16 is missing or no finite number above 0"));
  EXPECT_THAT(error_with("/memory", -1), HasSubstr("memory is missing or no finite number above 0"));
  EXPECT_THAT(error_with("/chip", "h101"), HasSubstr("chip \"h101\" is unknown: expected a100, h100"));
  EXPECT_THAT(error_with("/ranks_per_host", 0), HasSubstr("ranks_per_host must be at least 1"));
  EXPECT_THAT(error_with("/network/per", "rack"), HasSubstr("network.per"));
}

}  // namespace
}  // namespace nought::cluster_test
