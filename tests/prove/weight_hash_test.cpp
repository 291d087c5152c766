// The hash of a model's weights is the same whatever ranks hold of them, and another one if a bit is.
#include "nought/checkpoint/weight_hash.h"

#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "support/mesh_layouts.h"
#include "support/size.h"
#include "support/training_case.h"
#include <gtest/gtest.h>

#include "nought/io/sha256.h"

namespace nought::weight_hash_test {
namespace {

using test::MeshLayout;
using test::TrainingRank;

TEST(Sha256, is_that_of_the_standard) {
  EXPECT_EQ(sha256_of("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(Sha256().add("a").add("").add("bc").hex(), sha256_of("abc"));
  EXPECT_EQ(sha256_of(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

std::vector<MeshLayout> meshes() {
  std::vector<MeshLayout> all{{}};
  for (const int stage : {0, 1, 2, 3})
    for (const int ranks : {2, 3}) all.push_back(test::sharded(ranks, stage));
  for (const GridSizes& sizes :
       {GridSizes{.tensor = 2}, {.pipeline = 2}, {.context = 2}, {.replicate = 2}, {.shard = 2, .tensor = 2}})
    all.push_back({.sizes = sizes, .stage = sizes.shard > 1 ? 3 : 0});
  all.push_back({.sizes = {.shard = 2, .pipeline = 2, .expert = 2}, .stage = 2});
  return all;
}

/// The hashes that all ranks of all meshes give.
std::set<std::string> hashes_of(const ModelConfig& model) {
  std::set<std::string> hashes;
  for (const MeshLayout& mesh : meshes()) {
    test::TrainingCase each;
    each.model = model, each.mesh = mesh;
    std::mutex mutex;
    each.on_ranks([&](TrainingRank& rank) {
      const std::string hash = hash_weights(rank.model, /*with_frozen=*/true);
      const std::lock_guard lock(mutex);
      hashes.insert(hash);
    });
  }
  return hashes;
}

NOUGHT_SIZE(medium);
TEST(WeightHash, is_the_same_on_every_mesh_at_every_stage) {
  EXPECT_EQ(hashes_of(test::small_model("experts", 2)).size(), 1U);
  // The embedding has more than one stretch, and ranks share the last.
  EXPECT_EQ(hashes_of(test::small_model("grouped_heads", 2, {{"vocab_size", 48000}})).size(), 1U);
}

TEST(WeightHash, differs_after_a_step_and_with_every_parameter) {
  test::TrainingCase each;
  each.mesh = test::sharded(2, 2);
  each.on_ranks([&](TrainingRank& rank) {
    std::set<std::string> hashes{hash_weights(rank.model, true)};
    for (int64_t step = 0; step < 3; ++step) rank.step(step), hashes.insert(hash_weights(rank.model, true));
    EXPECT_EQ(hashes.size(), 4U);
    EXPECT_EQ(hash_weights(rank.model, true), hash_weights(rank.model, true));
  });
}

}  // namespace
}  // namespace nought::weight_hash_test
