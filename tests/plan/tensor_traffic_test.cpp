// What ranks that share matrices send for experts, latent vectors, norms of all heads and factors of 8 bits: formulas.
// agreement_test holds that predictions are what runs count.
#include "support/small_models.h"
#include <gtest/gtest.h>

#include "nought/plan/predict.h"

namespace nought::tensor_traffic_test {
namespace {

constexpr int64_t kTokens = 3 * 16, kMicroBatches = 2;

/// What the first rank sends along the tensor axis in a step.
Traffic sent_along_tensor(const ModelConfig& config, int tensor, const Fp8Options& fp8 = {}) {
  const Layout layout{.ranks = 2 * tensor,
                      .zero_stage = 0,
                      .tensor_ranks = tensor,
                      .micro_batch = 3,
                      .seq_length = 16,
                      .accumulation = kMicroBatches,
                      .fp8 = fp8,
                      .sharding = {.dtype = DType::bf16},
                      .wire = Wire::threads};
  for (const Mesh::GroupTraffic& group : predict(config, layout).traffic_by_axes)
    if (group.axes == "tensor") return group.traffic;
  ADD_FAILURE() << "nothing along the tensor axis";
  return {};
}

/// Sent for the sums of so many elements of a micro-batch, and of so many single ones, by the rank that owns these.
int64_t sent_for_sums(int tensor, int64_t elements, int64_t single) {
  EXPECT_EQ(elements % tensor, 0);
  return kMicroBatches * (tensor - 1) * (2 * elements / tensor + single);
}

constexpr int64_t kLosses = 1;  // the sum of the losses is one element

TEST(TensorTraffic, of_experts_and_latent_vectors_is_the_formula) {
  const ModelConfig config = test::small_model("latent");                  // a dense layer and one of experts
  const int64_t hidden = kTokens * config.hidden_size, ends = 2 * hidden;  // the lookup, and the head's input
  const int64_t dense = 2 * hidden;                                        // the result, and the input's gradient
  // Inputs and results of the experts and of the shared one, and the gradients of the weights of the choices.
  const int64_t experts = 4 * hidden + kTokens * config.experts->rule.top_k;
  // The result, and the gradients of the latent vectors and of the part of the keys that heads share.
  const int64_t attention =
      hidden + kTokens * (config.latent->q_rank + config.latent->kv_rank + config.latent->shared_dim);
  for (const int tensor : {2, 4}) {
    const Traffic sent = sent_along_tensor(config, tensor);
    EXPECT_EQ(sent[Collective::all_reduce].elements,
              sent_for_sums(tensor, ends + 2 * attention + dense + experts, kLosses));
    EXPECT_EQ(sent[Collective::all_gather].elements, kMicroBatches * kTokens * (tensor - 1)) << "for the losses";
    EXPECT_EQ(sent.total_elements(), sent[Collective::all_reduce].elements + sent[Collective::all_gather].elements);
  }
}

TEST(TensorTraffic, of_norms_over_all_heads_and_of_scales_is_the_formula) {
  ModelConfig config = test::small_model("head_norms");
  config.num_kv_heads = 4;  // ranks share none
  const int64_t hidden = kTokens * config.hidden_size, layers = config.num_layers;
  // For q and for k one number for each token: squares, and on the way back products.
  const int64_t sums = (4 * layers + 2) * hidden + layers * 2 * 2 * kTokens;
  // The largest values of both factors of the products that are cut by inputs, of one of those cut by outputs; on the
  // way back of the gradients of the latter.
  const int64_t scales = layers * (2 * 2 + 2 * 1 + 2 * 1);
  for (const int tensor : {2, 4}) {
    EXPECT_EQ(sent_along_tensor(config, tensor)[Collective::all_reduce].elements, sent_for_sums(tensor, sums, kLosses));
    EXPECT_EQ(sent_along_tensor(config, tensor, {.scaling = Fp8Scaling::current})[Collective::all_reduce].elements,
              sent_for_sums(tensor, sums, kLosses + scales));
  }
}

}  // namespace
}  // namespace nought::tensor_traffic_test
