// What is predicted for ranks that share sequences is what happens, and what they send is the formula of each method.
#include <chrono>
#include <thread>

#include "support/agreement.h"
#include "support/context_traffic.h"
#include "support/size.h"
#include <gtest/gtest.h>

#include "nought/kernels/watch.h"
#include "nought/parallel/context_heads.h"

namespace nought::context_agreement_test {
namespace {

NOUGHT_FILE_SIZE(medium);

using test::ContextTraffic;
using test::expect_agreement;
using test::heads_gradients_traffic;
using test::heads_traffic;
using test::key_gradients_traffic;
using test::keys_traffic;
using test::measure;
using test::Measurement;
using test::model_of;

constexpr std::array kMethods{ContextMethod::ring, ContextMethod::gather, ContextMethod::heads};

TEST(ContextAgreement, holds_for_ranks_that_share_sequences) {
  int i = 0, turn = 0;
  for (const char* family : {"llama", "gpt2", "qwen2", "deepseek_v2"})
    for (const ContextMethod method : kMethods)
      for (const auto& [ranks, context, stage] : {std::tuple(2, 2, 0), {4, 2, 3}, {4, 4, 1 + i % 3}}) {
        if (turn++ % 2 != 0) continue;  // every method meets every mesh, by two of the families
        const Layout layout{.ranks = ranks,
                            .zero_stage = stage,
                            .context_ranks = context,
                            .context_method = method,
                            .micro_batch = 2,
                            .seq_length = i % 2 == 0 ? 64 : 63,
                            .accumulation = 1 + i % 2,
                            .recompute = std::array{Recompute::none, Recompute::full, Recompute::selective}[i % 3],
                            .sharding = {.dtype = i % 2 == 0 ? DType::bf16 : DType::f32},
                            .wire = Wire::threads,
                            .evaluation_rows = i % 5 == 0 ? 3 : 0};
        SCOPED_TRACE(
            fmt::format("{}, {} of {} ranks by {}, {}", family, context, ranks, name_of(method), layout.str()));
        const Measurement measured = measure(model_of(family), layout);
        expect_agreement(predict(model_of(family), layout), measured);
        EXPECT_TRUE(measured.late_allocations == 0 || layout.evaluation_rows > 0) << measured.late_allocations;
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
                        .seq_length = 63,
                        .wire = Wire::threads};
    SCOPED_TRACE(name_of(method));
    expect_agreement(predict(model_of("llama"), layout), measure(model_of("llama"), layout));
  }
}

/// Documents that end in a chunk leave hops out: then sums come back while others still travel.
TEST(ContextAgreement, holds_for_documents_whose_keys_go_a_part_of_the_way) {
  const Layout layout{.ranks = 4,
                      .zero_stage = 2,
                      .context_ranks = 4,
                      .context_method = ContextMethod::ring,
                      .micro_batch = 2,
                      .seq_length = 128,
                      .accumulation = 2,
                      .wire = Wire::threads};
  EXPECT_EQ(measure(model_of("llama"), layout, /*documents=*/true).late_allocations, 0);
}

/// One rank after another is slow, each in a step of its own: no more messages are under way than in the first steps.
TEST(ContextAgreement, a_ring_allocates_nothing_late_whoever_is_slow) {
  const ModelConfig config = model_of("llama");
  const Layout layout{.ranks = 4,
                      .zero_stage = 0,
                      .context_ranks = 4,
                      .context_method = ContextMethod::ring,
                      .micro_batch = 1,
                      .seq_length = 128,
                      .wire = Wire::threads};
  run_ranks(4, [&](Communicator& ranks, const Context& plain) {
    Context context = plain;
    int64_t slow_step = 0;
    context.kernels = make_watching_kernels(plain.kernels, [&](std::string_view ran, std::string_view, const Tensor&) {
      const bool mine = ran == "MergeAttention" && slow_step == ranks.rank();
      if (mine) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    });
    const Mesh mesh(ranks, layout.grid());
    Decoder decoder(config, {}, {}, ModelRanks(mesh, false, {}, layout.context_method));
    ShardedModel model(context, mesh, decoder, {.policy = Policy::stage(0)});
    Engine engine(model);
    int64_t asked = 0;
    for (int step = 0; step < 6; ++step) {
      if (step == 2) asked = context.memory->system_allocations();
      slow_step = step < 2 ? -1 : step - 2;
      const Batch batch = empty_batch(1, layout.seq_length, *context.memory);
      context.zero(batch.input_ids), context.zero(batch.targets);
      engine.step(std::span(&batch, 1), layout.tokens_per_step(), 1e-3, 1);
    }
    model.settle();
    EXPECT_EQ(context.memory->system_allocations(), asked) << "rank " << ranks.rank();
  });
}

/// 16 key/value heads of a narrow MLP: all of them at once would be most of what a rank needs.
TEST(ContextAgreement, gathered_keys_take_no_more_than_the_activations_of_a_rank) {
  Json json{{"model_type", "llama"},     {"vocab_size", 512},      {"hidden_size", 128},
            {"intermediate_size", 128},  {"num_hidden_layers", 2}, {"num_attention_heads", 16},
            {"num_key_value_heads", 16}, {"head_dim", 32},         {"max_position_embeddings", 4096}};
  const ModelConfig config = ModelConfig::from_json(json);
  const Layout layout{.ranks = 4,
                      .zero_stage = 3,
                      .context_ranks = 4,
                      .context_method = ContextMethod::gather,
                      .micro_batch = 1,
                      .seq_length = 2048,
                      .wire = Wire::threads};
  const Prediction predicted = predict(config, layout);
  expect_agreement(predicted, measure(config, layout));
  // One head of all tokens is as wide as gate and up of a rank's own: forward two groups come in turn, and lie in
  // order.
  const int64_t group = 2048 * 2 * 32 * 4;
  EXPECT_LE(predicted.memory.peak[static_cast<size_t>(Category::communication)], 8 * group + 2 * test::kMiB);
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
}  // namespace nought::context_agreement_test
