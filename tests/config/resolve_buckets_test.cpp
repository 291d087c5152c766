// Buckets that are "auto" wait for the model: an inline one is known at once, a folder's is when it is read.
#include "support/resolved.h"
#include <gtest/gtest.h>

namespace nought::resolve_buckets_test {
namespace {

using test::plan_of;
using test::reason_of;
using test::value_of;

constexpr const char* kAutomatic = R"("training": {"output_dir": "out"}, "deepspeed": {"zero_optimization": {"stage": 3,
    "reduce_bucket_size": "auto", "stage3_prefetch_bucket_size": "auto", "stage3_param_persistence_threshold": "auto"}}})";

TEST(ResolveBuckets, automatic_ones_have_their_numbers_once_the_hidden_size_is_known) {
  const RunPlan of_folder = plan_of(std::string(R"({"model": "somewhere", )") + kAutomatic);
  EXPECT_TRUE(has_automatic_buckets(of_folder));
  EXPECT_EQ(value_of(of_folder, "reduce_bucket_size"), "hidden_size^2");
  const RunPlan read = with_automatic_buckets(of_folder, 64);
  EXPECT_FALSE(has_automatic_buckets(read));
  EXPECT_EQ(read.layout.sharding.reduce_bucket, 4096);
  for (const auto& [key, value] : {std::pair("reduce_bucket_size", "4096"),
                                   {"stage3_prefetch_bucket_size", "3686"},
                                   {"stage3_param_persistence_threshold", "640"}})
    EXPECT_EQ(value_of(read, key), value) << key;
  const RunPlan inline_model = plan_of(std::string(R"({"model": {"hidden_size": 64}, )") + kAutomatic);
  EXPECT_EQ(inline_model.layout.sharding.reduce_bucket, read.layout.sharding.reduce_bucket);
  EXPECT_EQ(reason_of(inline_model, "reduce_bucket_size"), "deepspeed: auto <- hidden_size^2");
}

}  // namespace
}  // namespace nought::resolve_buckets_test
