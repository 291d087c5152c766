// What is predicted for ranks that share sequences is what happens, and what they send is the formula of each method.
#include "support/agreement.h"
#include <gtest/gtest.h>

#include "nought/parallel/context_heads.h"
#include "nought/parallel/context_traffic.h"

namespace nought {
namespace {

using test::expect_agreement;
using test::measure;
using test::Measurement;
using test::model_of;

constexpr std::array kMethods{ContextMethod::ring, ContextMethod::gather, ContextMethod::heads};

TEST(ContextAgreement, holds_for_ranks_that_share_sequences) {
  int i = 0;
  for (const char* family : {"llama", "gpt2", "qwen2", "deepseek_v2"})
    for (const ContextMethod method : kMethods)
      for (const auto& [ranks, context, stage] : {std::tuple(2, 2, 0), {4, 2, 3}, {4, 4, 1 + i % 3}}) {
        const Layout layout{.ranks = ranks,
                            .zero_stage = stage,
                            .context_ranks = context,
                            .context_method = method,
                            .micro_batch = 2,
                            .seq_length = i % 2 == 0 ? 128 : 127,
                            .accumulation = 1 + i % 2,
                            .recompute = std::array{Recompute::none, Recompute::full, Recompute::selective}[i % 3],
                            .sharding = {.dtype = i % 2 == 0 ? DType::bf16 : DType::f32},
                            .wire = Wire::threads,
                            .evaluation_rows = i % 5 == 0 ? 3 : 0};
        SCOPED_TRACE(
            fmt::format("{}, {} of {} ranks by {}, {}", family, context, ranks, name_of(method), layout.str()));
        const Measurement measured = measure(model_of(family), layout);
        const bool ring = method == ContextMethod::ring;
        expect_agreement(predict(model_of(family), layout), measured, /*copied_messages=*/ring);
        EXPECT_TRUE(measured.late_allocations == 0 || layout.evaluation_rows > 0 || ring) << measured.late_allocations;
        ++i;
      }
}

TEST(ContextAgreement, holds_beside_shared_matrices_and_slices_of_the_tokens) {
  for (const ContextMethod method : kMethods) {
    const Layout layout{.ranks = 4,
                        .zero_stage = 1,
                        .tensor_ranks = 2,
                        .context_ranks = 2,
                        .context_method = method,
                        .sequence_parallel = true,
                        .micro_batch = 2,
                        .seq_length = 127,
                        .wire = Wire::threads};
    SCOPED_TRACE(name_of(method));
    expect_agreement(predict(model_of("llama"), layout), measure(model_of("llama"), layout),
                     /*copied_messages=*/method == ContextMethod::ring);
  }
}

Traffic along_context(const Prediction& predicted) {
  for (const Mesh::GroupTraffic& group : predicted.traffic_by_axes)
    if (group.axes == "context") return group.traffic;
  ADD_FAILURE() << "nothing along the context axis";
  return {};
}

/// Every layer's forward pass, which full recompute runs twice, and its backward pass.
TEST(ContextAgreement, traffic_along_the_context_axis_is_the_formula_of_the_method) {
  const ModelConfig config = model_of("llama");
  const int64_t key_width = 2 * config.num_kv_heads * config.head_dim;
  for (const ContextMethod method : kMethods)
    for (const int context : {2, 4})
      for (const Recompute recompute : {Recompute::none, Recompute::full}) {
        SCOPED_TRACE(fmt::format("{} ranks by {}, {}", context, name_of(method), name_of(recompute)));
        const Layout layout{.ranks = 2 * context,
                            .zero_stage = 0,
                            .context_ranks = context,
                            .context_method = method,
                            .micro_batch = 3,
                            .seq_length = 64,
                            .accumulation = 2,
                            .recompute = recompute,
                            .wire = Wire::threads};
        ContextTokens tokens{.rows = 3, .length = 64};
        tokens.ranks.ranks = context, tokens.ranks.method = method;
        const PackedHeads heads{
            .num_heads = config.num_heads, .num_kv_heads = config.num_kv_heads, .head_dim = config.head_dim};
        const ContextSpans spans(tokens, {.causal = true});
        const bool exchanges = method == ContextMethod::heads;
        const ContextTraffic forward = exchanges ? heads_traffic(tokens, heads) : keys_traffic(spans, key_width);
        const ContextTraffic gradients =
            exchanges ? heads_gradients_traffic(tokens, heads) : key_gradients_traffic(spans, key_width);
        // A backward pass of exchanged heads needs no keys of others; the other two send keys again.
        const int64_t passes = (recompute == Recompute::full ? 2 : 1) + (exchanges ? 0 : 1);
        const int64_t times = layout.accumulation * config.num_layers;
        const Traffic sent = along_context(predict(config, layout));
        EXPECT_EQ(sent[Collective::send].elements, times * (passes * forward.send + gradients.send));
        EXPECT_EQ(sent[Collective::all_gather].elements, times * passes * forward.all_gather);
        EXPECT_EQ(sent[Collective::reduce_scatter].elements, times * gradients.reduce_scatter);
        EXPECT_EQ(sent[Collective::all_to_all_v].elements,
                  times * (passes * forward.all_to_all_v + gradients.all_to_all_v));
        EXPECT_GT(sent.total_elements(), 0);
        EXPECT_EQ(sent.total_elements(), sent[Collective::send].elements + sent[Collective::all_gather].elements +
                                             sent[Collective::reduce_scatter].elements +
                                             sent[Collective::all_to_all_v].elements);
      }
}

/// Half of the tokens are half of the activations: what is left over is of parameters, and of keys that pass by.
TEST(ContextAgreement, activations_fall_with_the_ranks_that_share_a_sequence) {
  const ModelConfig config = model_of("llama");
  const auto activations = [&](int context, ContextMethod method) {
    const Layout layout{.ranks = 4,
                        .zero_stage = 3,
                        .context_ranks = context,
                        .context_method = method,
                        .micro_batch = 1,
                        .seq_length = 4096,
                        .wire = Wire::threads};
    return static_cast<double>(predict(config, layout).memory.peak[static_cast<size_t>(Category::activations)]);
  };
  const double whole = activations(1, ContextMethod::ring);
  for (const ContextMethod method : kMethods)
    for (const int context : {2, 4})
      EXPECT_LT(activations(context, method), 1.15 * whole / context) << context << " ranks by " << name_of(method);
}

}  // namespace
}  // namespace nought
