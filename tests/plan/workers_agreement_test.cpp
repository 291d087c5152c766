// What is predicted of workers that make local steps, and of ranks that serve parameters, is what the ledger and the
// counters of a run say.
#include "support/agreement.h"
#include "support/size.h"
#include <gtest/gtest.h>

#include "nought/zero/local_steps.h"
#include "nought/zero/local_steps_options.h"
#include "nought/zero/rotating_servers.h"

namespace nought::workers_agreement_test {
namespace {

NOUGHT_FILE_SIZE(medium);

Layout layout_at(int ranks, int stage, DType dtype) {
  return {.ranks = ranks,
          .zero_stage = stage,
          .micro_batch = 2,
          .seq_length = 128,
          .sharding = {.dtype = dtype, .gradient_dtype = dtype},
          .wire = Wire::threads};
}

std::vector<Batch> batches_of(const Layout& layout, const Context& context) {
  std::vector<Batch> batches{empty_batch(layout.micro_batch, layout.seq_length, *context.memory)};
  context.zero(batches[0].input_ids), context.zero(batches[0].targets);
  return batches;
}

void expect_same_memory(const Prediction& predicted, const std::array<int64_t, kNumCategories>& steady,
                        const RankMemory& memory) {
  EXPECT_EQ(predicted.steady, steady);
  EXPECT_EQ(predicted.memory.peak, memory.peak);
  EXPECT_EQ(predicted.memory.peak_total, memory.peak_total);
}

std::array<int64_t, kNumCategories> steady_of(const Context& context) {
  std::array<int64_t, kNumCategories> steady{};
  for (size_t c = 0; c < kNumCategories; ++c) steady[c] = context.memory->ledger().current(static_cast<Category>(c));
  return steady;
}

NOUGHT_SIZE(long);
TEST(WorkersAgreement, holds_to_the_byte_for_local_steps) {
  const ModelConfig config = test::model_of("llama");
  int i = 0;
  for (const LocalStepsOptions& options :
       {LocalStepsOptions{.sync_every = 2}, {.sync_every = 4, .fragments = 2, .delay = 1, .momentum = 0}})
    for (const int stage : {0, 1, 3}) {
      Layout layout = layout_at(4, stage, i++ % 2 == 0 ? DType::f32 : DType::bf16);
      layout.replicas = 2, layout.local_steps = options;
      if (stage == 3 && options.delay == 0) layout.sharding.codes = {.weight_bits = 8, .gradient_bits = 4};
      SCOPED_TRACE(layout.str());
      const Prediction predicted = predict(config, layout);
      run_ranks(4, [&](Communicator& world, const Context& context) {
        const Workers workers(world, layout.grid());
        Decoder decoder(config, {}, {}, ModelRanks(workers.mesh()));
        ShardedModel::Options sharding = layout.sharding;
        sharding.policy = Policy::stage(stage);
        ShardedModel model(context, workers.mesh(), decoder, sharding);
        LocalSteps local(model, workers, options);
        local.begin();
        Engine engine(model);
        Traffic at_synchronizations, in_step;
        for (int64_t step = 1; step <= 2 * options.sync_every; ++step) {
          const Traffic before = workers.traffic();
          engine.step(batches_of(layout, context), static_cast<double>(layout.tokens_per_step()), 1e-3, 1);
          const Traffic between = workers.traffic();
          local.after_step(step);
          in_step = test::difference(between, before);
          if (step > options.sync_every)
            at_synchronizations = test::difference(at_synchronizations, test::difference(between, workers.traffic()));
        }
        if (options.delay > 0) {
          // What began to synchronize in the last step has been sent; its end is not in sight.
          engine.step(batches_of(layout, context), static_cast<double>(layout.tokens_per_step()), 1e-3, 1);
          local.after_step(2 * options.sync_every + options.delay);
        }
        model.settle();
        if (world.rank() != 0) return;
        expect_same_memory(predicted, steady_of(context), peaks_of(*context.memory));
        EXPECT_EQ(at_synchronizations.total_elements(), predicted.at_synchronizations.total_elements());
        EXPECT_EQ(at_synchronizations.total_bytes(), predicted.at_synchronizations.total_bytes());
        // The six numbers by which workers tell each other how a step went.
        EXPECT_EQ(in_step.total_bytes() + 6 * 8, predicted.traffic.total_bytes());
      });
    }
}

TEST(WorkersAgreement, a_run_that_ends_while_a_fragment_is_on_its_way_needs_no_more_than_planned) {
  ModelConfig config = test::model_of("llama");
  config.num_layers = 1;  // three fragments of one Unit each
  const LocalStepsOptions options{.sync_every = 6, .fragments = 3, .delay = 1};
  Layout layout = layout_at(2, 0, DType::bf16);
  layout.replicas = 2, layout.local_steps = options;
  const Prediction predicted = predict(config, layout);
  run_ranks(2, [&](Communicator& world, const Context& context) {
    const Workers workers(world, layout.grid());
    Decoder decoder(config, {}, {}, ModelRanks(workers.mesh()));
    ShardedModel model(context, workers.mesh(), decoder, layout.sharding);
    LocalSteps local(model, workers, options);
    local.begin();
    Engine engine(model);
    for (int64_t step = 1; step <= options.sync_every; ++step) {
      engine.step(batches_of(layout, context), static_cast<double>(layout.tokens_per_step()), 1e-3, 1);
      local.after_step(step);
    }
    ASSERT_EQ(local.on_its_way(options.sync_every), 2u);
    local.finish(options.sync_every);
    model.settle();
    EXPECT_EQ(predicted.memory.peak, peaks_of(*context.memory).peak);
  });
}

TEST(WorkersAgreement, holds_to_the_byte_for_servers) {
  const ModelConfig config = test::model_of("llama");
  for (const int64_t staleness : {int64_t{0}, int64_t{2}})
    for (const DType dtype : {DType::f32, DType::bf16}) {
      Layout layout = layout_at(2, 1, dtype);
      layout.staleness = staleness;
      SCOPED_TRACE(fmt::format("{}, staleness {}", layout.str(), staleness));
      const Prediction predicted = predict(config, layout);
      run_ranks(2, [&](Communicator& world, const Context& context) {
        Decoder decoder(config);
        ShardedModel::Options sharding = layout.sharding;
        sharding.policy = Policy::stage(1), sharding.local_gradients = true;
        ShardedModel model(context, world, decoder, sharding);
        RotatingServers servers(model, world.split(0, world.rank()), world.split(0, world.rank()), staleness);
        servers.begin(0);
        Engine engine(model);
        Traffic before;
        for (int step = 0; step < 4; ++step) {
          before = servers.traffic();
          engine.pass(batches_of(layout, context), static_cast<double>(layout.tokens_per_step()));
          servers.push({.loss_sum = 1, .total_weight = 1, .lr = 1e-3, .max_norm = 1});
          servers.pull();
          servers.drain();  // so that all that a step sends has been counted
        }
        model.settle();
        if (world.rank() != 0) return;
        expect_same_memory(predicted, steady_of(context), peaks_of(*context.memory));
        test::expect_same_traffic(predicted.traffic, test::difference(servers.traffic(), before));
      });
    }
}

}  // namespace
}  // namespace nought::workers_agreement_test
