// What is planned for a GPU is what a run takes there, to the byte: of every category, in every pool, with states and
// parameters anywhere.
#include <numeric>
#include <string>
#include <tuple>
#include <vector>

#include "support/agreement.h"
#include "support/planned_products.h"
#include "support/small_models.h"
#include "support/temp_folder.h"
#include <gtest/gtest.h>

#include "nought/cuda/backend/kernels.h"

namespace nought::plan_test {
namespace {

using test::Measurement;

/// Tokens choose all experts, so that no router decides how many rows there are.
ModelConfig model_of_family(const std::string& family) {
  if (family == "gpt2") return test::small_model("biases");
  nlohmann::json json{{"model_type", family},        {"vocab_size", 61},
                      {"hidden_size", 32},           {"intermediate_size", 44},
                      {"num_hidden_layers", 2},      {"num_attention_heads", 4},
                      {"num_key_value_heads", 2},    {"max_position_embeddings", 16},
                      {"tie_word_embeddings", false}};
  if (family == "mixtral") json["num_local_experts"] = json["num_experts_per_tok"] = 2;
  return ModelConfig::from_json(json);
}

Layout layout_on_gpu(int ranks, int stage) {
  return {.ranks = ranks,
          .zero_stage = stage,
          .micro_batch = 2,
          .seq_length = 8,
          .accumulation = 2,
          .wire = Wire::threads,
          .gpu = PlannedGpu{.product_workspace = test::planned_products()}};
}

Measurement measured_on_gpu(const ModelConfig& config, const Layout& layout) {
  std::vector<Context> contexts;
  for (int rank = 0; rank < layout.ranks; ++rank) contexts.push_back(cuda::make_context({.poison = true}));
  return test::measure(config, layout, /*documents=*/false, contexts);
}

using Bytes = std::array<int64_t, kNumCategories>;

void expect_bytes(const Bytes& planned, const Bytes& measured, std::string_view what) {
  for (size_t c = 0; c < kNumCategories; ++c)
    EXPECT_EQ(planned[c], measured[c]) << what << ": " << name_of(static_cast<Category>(c));
}

/// What is on the host besides: rooms that bytes pass through. Threads of the host give them back as they come to it,
/// so there may be a few more, or less, than the plan has at once.
void expect_rooms(const Prediction& planned, const Measurement& measured) {
  constexpr int64_t kRooms = 128 << 10;  // four blocks of the model, in fp32
  for (const Category category : {Category::gradients, Category::workspace}) {
    const auto c = static_cast<size_t>(category);
    EXPECT_NEAR(static_cast<double>(planned.memory.host[c]), static_cast<double>(measured.memory.host[c]), kRooms)
        << name_of(category);
  }
}

void expect_to_the_byte(const Prediction& planned, const Measurement& measured, bool rooms = false) {
  expect_bytes(planned.memory.peak, measured.memory.peak, "peak on the device");
  expect_bytes(planned.memory.at_peak, measured.memory.at_peak, "at the peak of all");
  Bytes host = measured.memory.host, steady_host = measured.steady_host;
  if (rooms) {
    expect_rooms(planned, measured);
    for (const Category category : {Category::gradients, Category::workspace}) {
      const auto c = static_cast<size_t>(category);
      host[c] = planned.memory.host[c], steady_host[c] = planned.steady_host[c];
    }
  }
  expect_bytes(planned.memory.host, host, "peak on the host");
  expect_bytes(planned.memory.file, measured.memory.file, "peak in files");
  EXPECT_EQ(planned.memory.peak_total, measured.memory.peak_total);
  if (planned.layout.ranks == 1 && !rooms) {
    EXPECT_EQ(planned.memory.host_peak, measured.memory.host_peak);
    EXPECT_EQ(planned.memory.ram_peak, measured.memory.ram_peak);
  } else {  // what collectives take there is taken by another thread, beside what else the rank has
    EXPECT_LE(measured.memory.host_peak,
              std::accumulate(measured.memory.host.begin(), measured.memory.host.end(), int64_t{0}));
  }
  expect_bytes(planned.steady, measured.steady, "steady on the device");
  expect_bytes(planned.steady_host, steady_host, "steady on the host");
  expect_bytes(planned.steady_file, measured.steady_file, "steady in files");
  EXPECT_EQ(planned.states.read, measured.states.read);
  EXPECT_EQ(planned.states.written, measured.states.written);
  if (planned.layout.ranks == 1) {  // with several, collectives copy when their thread comes to it: in the next step
    EXPECT_EQ(planned.states, measured.states);
  }
  test::expect_same_traffic(planned.traffic, measured.traffic);
}

class CudaPlan : public ::testing::TestWithParam<const char*> {};

TEST_P(CudaPlan, is_the_ledger_of_every_stage_to_the_byte) {
  const ModelConfig config = model_of_family(GetParam());
  for (const int ranks : {1, 2})
    for (const int stage : {0, 1, 2, 3}) {
      if (ranks == 1 && stage != 3) continue;  // one shares nothing out
      SCOPED_TRACE(fmt::format("{} ranks, stage {}", ranks, stage));
      Layout layout = layout_on_gpu(ranks, stage);
      layout.accumulation = 1 + stage % 2;
      expect_to_the_byte(predict(config, layout), measured_on_gpu(config, layout));
    }
}

INSTANTIATE_TEST_SUITE_P(Families, CudaPlan, ::testing::Values("llama", "gpt2", "mixtral"),
                         [](const auto& info) { return std::string(info.param); });

class CudaOffloadPlan : public ::testing::Test {
 protected:
  OffloadOptions to(Pool pool) const {
    OffloadOptions options{.tier = {pool}, .sub_group = 900};
    if (pool != Pool::file) return options;
    options.tier.folder = folder_.path().string(), options.tier.aio.backend = AioBackend::threads;
    options.reads_ahead = options.writes_behind = true, options.buffers = 12;
    return options;
  }
  ParameterOffload parameters_in(Pool pool) const {
    return {
        .tier = {pool, folder_.path().string(), {.backend = AioBackend::threads}}, .buffers = 2, .buffer_size = 5'000};
  }
  static void expect_planned(const Layout& layout, std::string_view what) {
    SCOPED_TRACE(fmt::format("{}: {} ranks, {}", what, layout.ranks, layout.str()));
    const ModelConfig config = model_of_family("llama");
    const Prediction planned = predict(config, layout);
    expect_to_the_byte(planned, measured_on_gpu(config, layout), /*rooms=*/true);
  }

  test::TempFolder folder_;
};

TEST_F(CudaOffloadPlan, is_the_ledger_with_states_elsewhere) {
  for (const auto& [ranks, stage, pool] :
       {std::tuple(1, 3, Pool::host), {1, 2, Pool::file}, {2, 1, Pool::host}, {2, 2, Pool::file}, {2, 3, Pool::host}}) {
    Layout layout = layout_on_gpu(ranks, stage);
    layout.sharding.offload_optimizer = to(pool);
    expect_planned(layout, name_of(pool));
  }
}

TEST_F(CudaOffloadPlan, is_the_ledger_with_parameters_elsewhere) {
  for (const int ranks : {1, 2})
    for (const Pool pool : {Pool::host, Pool::file}) {
      Layout layout = layout_on_gpu(ranks, 3);
      layout.sharding.offload_param = parameters_in(pool);
      if (ranks == 2) layout.sharding.offload_optimizer = to(pool);
      expect_planned(layout, name_of(pool));
    }
}

/// The host runs ahead of the device by whole steps: what passes it must be bounded by more than that.
TEST_F(CudaOffloadPlan, what_passes_the_host_does_not_grow_with_the_passes) {
  const auto host_peak = [&](int64_t accumulation, bool inputs) {
    Layout layout = layout_on_gpu(1, 3);
    layout.accumulation = accumulation;
    if (inputs) {
      layout.recompute = Recompute::full;
      layout.recompute.tier.pool = Pool::host;
    } else {
      layout.sharding.offload_param = parameters_in(Pool::file);
    }
    const Prediction planned = predict(model_of_family("llama"), layout);
    return planned.memory.host[static_cast<size_t>(inputs ? Category::activations : Category::parameters)];
  };
  for (const bool inputs : {false, true}) {
    EXPECT_GT(host_peak(1, inputs), 0);
    EXPECT_EQ(host_peak(4, inputs), host_peak(2, inputs));
  }
}

TEST_F(CudaOffloadPlan, is_the_ledger_with_gradients_and_inputs_elsewhere) {
  Layout files = layout_on_gpu(1, 2);
  files.sharding.offload_optimizer = to(Pool::file);
  files.sharding.offload_optimizer.gradients_in_file = true;
  files.recompute = Recompute::full;
  files.recompute.tier.pool = Pool::file, files.recompute.tier.folder = folder_.path().string();
  expect_planned(files, "gradients and inputs in files");
  Layout host = layout_on_gpu(2, 3);
  host.sharding.offload_optimizer = to(Pool::host);
  host.recompute = Recompute::full;
  host.recompute.tier.pool = Pool::host;
  expect_planned(host, "inputs on the host");
}

TEST_F(CudaOffloadPlan, is_the_ledger_with_updates_overlapped_with_the_passes) {
  for (const Pool pool : {Pool::host, Pool::file}) {
    Layout layout = layout_on_gpu(1, 2);
    layout.sharding.offload_optimizer = to(pool);
    layout.sharding.offload_optimizer.delay_after = 0;
    expect_planned(layout, fmt::format("one step late, {}", name_of(pool)));
  }
  Layout early = layout_on_gpu(1, 2);
  early.sharding.offload_optimizer = to(Pool::host);
  early.sharding.offload_optimizer.early = true;
  expect_planned(early, "overlapped with the backward pass");
}

TEST(CudaPlanWithoutAGpu, takes_the_limit_for_the_workspace_of_products) {
  const ModelConfig config = model_of_family("llama");
  Layout layout = layout_on_gpu(1, 0);
  const Prediction exact = predict(config, layout);
  layout.gpu = PlannedGpu{};
  const Prediction planned = predict(config, layout);
  const auto workspace = static_cast<size_t>(Category::workspace);
  EXPECT_GE(planned.memory.peak[workspace], cuda::kMostWorkspaceOfProducts);
  EXPECT_LE(planned.memory.peak[workspace], cuda::kMostWorkspaceOfProducts + exact.memory.peak[workspace]);
  for (size_t c = 0; c < kNumCategories; ++c) {
    if (c == workspace) continue;
    EXPECT_EQ(planned.memory.peak[c], exact.memory.peak[c]) << name_of(static_cast<Category>(c));
  }
}

}  // namespace
}  // namespace nought::plan_test
