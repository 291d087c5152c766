// The golden models of tests/golden on any mesh: what ranks compute together is what Hugging Face computes.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "support/golden.h"
#include "support/golden_output.h"
#include "support/training_case.h"
#include <gtest/gtest.h>

namespace nought::test {

/// One golden family for each structure that meshes cut: grouped heads, biases of all kinds, a tied head, norms of
/// heads and of all heads, latent attention, experts with and without shared ones, sinks, sliding windows, norms
/// behind. With NOUGHT_LONG every family that four ranks can share the matrices of.
std::vector<const char*> mesh_families();
/// With NOUGHT_LONG the families of kGoldenOptions whose layers keep no states, else none.
std::vector<const char*> long_options();
/// The cases with a loss that balances experts.
inline constexpr const char* kAuxiliaryFamilies[] = {"open/mixtral", "open/qwen2_moe", "open/qwen3_moe"};

/// The name of a test of one family: "open/llama" is llama.
std::string family_of(const ::testing::TestParamInfo<const char*>& info);

struct GoldenCase {
  std::string folder;  // as golden_folder() gives it
  MeshLayout mesh = {};
  RecomputeOptions recompute = {};
  bool guarded = false;
  int64_t micro_batches = 1;
  bool balanced = false;           // with the loss that balances experts
  double balance_coefficient = 0;  // 0: the folder's
  std::vector<Context> contexts = {};

  std::string golden() const { return folder + "/golden.safetensors"; }
  ModelConfig config() const;
  /// With the folder's weights.
  TrainingCase training() const;
  /// Calls body(rank, the golden batch) on every rank.
  void on_ranks(const std::function<void(TrainingRank&, const ProbeInput&)>& body) const;
  /// Logits, loss and gradients of the golden batch; change: what is done with the batch before.
  ProbeOutput probe(const std::function<void(const ProbeInput&)>& change = {}) const;
  /// All of them are those of the folder, or with `balanced` loss and gradients. Traced with the mesh.
  void expect_golden() const;
};

/// The next token's logits from a cache, a few tokens at a time, are those of the whole sequence. `counts`: of tokens.
void expect_cached_logits(TrainingRank& rank, const Tensor& ids, const std::vector<int64_t>& counts);

}  // namespace nought::test
