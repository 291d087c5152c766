// The small models of the tests, one for each structure that a decoder may have.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "nought/models/config.h"

namespace nought::test {

inline constexpr int64_t kSmallVocabulary = 61;  // which no number of ranks divides

/// By what it has that others do not:
///   grouped_heads    llama: queries in groups; sizes that borders of shards cut through
///   qk_norms         qwen3: norms of heads, groups of four, a tied head; up to 8 ranks share its matrices
///   biases           gpt2: biases of norms and products, learned positions, a tied head; up to 8 ranks
///   experts          mixtral: each layer of experts, without a shared one
///   shared_experts   qwen2_moe: a dense layer and one of 8 experts with a shared one behind a gate, in turn; the loss
///                    balances them; up to 8 ranks
///   latent           deepseek_v3: latent attention, a dense layer, experts that a bias helps to choose, of which four
///                    ranks have unequal parts
///   sinks            gpt_oss: sinks, sliding windows, experts of a layer in one tensor with biases, gate and up in
///   turn sliding_windows  mistral: a window of 5 tokens post_norms       gemma2: norms before and behind attention and
///   MLP, capped scores and logits head_norms       olmo2: norms of all heads, one head of keys and values that all
///   ranks share
/// Weights begin so large that the rounding of one step hardly grows in thirty: with the usual standard deviation of
/// 0.02 the norms of six layers differ by 1e-4 as soon as gradients are added in another order.
/// sizes: other numbers, by their keys in config.json.
ModelConfig small_model(const std::string& structure, int layers = 2, const std::map<std::string, int64_t>& sizes = {});

/// All of them.
std::vector<const char*> small_models();

/// The name of a test of one of them.
/// The structure's place among small_models(): where a sweep begins of which each structure meets some.
int64_t turn_of_structure(const std::string& structure);

std::string name_of_structure(const ::testing::TestParamInfo<const char*>& info);

}  // namespace nought::test
