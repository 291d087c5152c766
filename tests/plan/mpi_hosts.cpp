// What is predicted of collectives between hosts is what the ledger of processes says: mpirun -n 4 test_plan_mpi, of
// which every two behave as if they had a host of their own.
#include <cstdio>

#include "support/agreement.h"
#include <gtest/gtest.h>

#include "nought/comm/mpi.h"

namespace nought {
namespace {

constexpr int kRanks = 4, kRanksPerHost = 2;

Communicator* the_world = nullptr;
const Context* the_context = nullptr;

/// The communication buffers of a rank that has made some steps: between two of them, and at the peak.
struct Buffers {
  int64_t steady = 0, peak = 0;
};

Buffers buffers_of(const ModelConfig& config, const Layout& layout) {
  const MemoryLedger& ledger = the_context->memory->ledger();
  the_context->memory->ledger().reset_peaks();
  const Mesh mesh(*the_world, layout.grid());
  Decoder decoder(config, {}, {}, ModelRanks(mesh));
  ShardedModel::Options options = layout.sharding;
  options.policy = Policy::stage(layout.zero_stage);
  ShardedModel model(*the_context, mesh, decoder, options);
  Engine engine(model);
  for (int step = 0; step < 3; ++step) {
    const Batch batch = empty_batch(layout.micro_batch, layout.seq_length, *the_context->memory);
    the_context->zero(batch.input_ids), the_context->zero(batch.targets);
    engine.step(std::span(&batch, 1), layout.tokens_per_step(), 1e-3, 1);
  }
  model.settle();
  return {ledger.current(Category::communication), ledger.peak(Category::communication)};
}

TEST(MpiHosts, windows_are_planned_inside_hosts_and_buffers_of_messages_between_them) {
  ASSERT_EQ(the_world->size(), kRanks);
  const ModelConfig config = test::model_of("llama");
  for (const auto& [tensor, stage] : {std::pair(1, 0), {1, 2}, {1, 3}, {2, 1}}) {
    const Layout layout{.ranks = kRanks,
                        .zero_stage = stage,
                        .tensor_ranks = tensor,
                        .micro_batch = 1,
                        .seq_length = 64,
                        .ranks_per_host = kRanksPerHost};
    SCOPED_TRACE(fmt::format("{} share matrices, {}", tensor, layout.str()));
    const Buffers measured = buffers_of(config, layout);
    if (the_world->rank() != 0) continue;
    const Prediction predicted = predict(config, layout);
    const auto communication = static_cast<size_t>(Category::communication);
    EXPECT_EQ(predicted.steady[communication], measured.steady);
    test::expect_within_2_percent(predicted.memory.peak[communication], measured.peak, "peak");
    Layout on_one = layout;
    on_one.ranks_per_host = 0;
    EXPECT_NE(predict(config, on_one).steady[communication], measured.steady);
  }
}

}  // namespace
}  // namespace nought

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  try {
    nought::use_one_openmp_thread();
    const nought::Context context = nought::Context::cpu();
    nought::MpiWorld job(context, {.ranks_per_host = nought::kRanksPerHost});
    nought::the_world = &job.world();
    nought::the_context = &context;
    const int code = RUN_ALL_TESTS();
    if (code != 0) nought::MpiWorld::abort(code);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "test_plan_mpi: %s\n", error.what());
    nought::MpiWorld::abort(3);
  }
  return 0;
}
