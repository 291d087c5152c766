// Whole models on a CUDA device: what Hugging Face computes, with the same bits in every layout that has the same order
// of additions.
#include <algorithm>

#ifdef NOUGHT_CUDA_EMULATED
#include "cuda_emulation/control.h"
#endif
#include "support/golden_output.h"
#include "support/guarded_context.h"
#include "support/training_case.h"
#include <gtest/gtest.h>

#include "nought/comm/thread.h"
#include "nought/cuda/backend/kernels.h"
#include "nought/measure/samples.h"
#include "nought/weights/hf_folder.h"

namespace nought::models_test {
namespace {

using test::golden_folder;

/// In which order threads and blocks run. A GPU has an order of its own.
void set_order([[maybe_unused]] uint32_t order) {
#ifdef NOUGHT_CUDA_EMULATED
  emulation::set_order(order);
#endif
}

/// A device for each rank; what was never written, and what went back, is NaN.
std::vector<Context> cuda_contexts(int ranks, int64_t max_blocks = 0) {
  std::vector<Context> contexts;
  for (int rank = 0; rank < ranks; ++rank)
    contexts.push_back(cuda::make_context({.max_blocks = max_blocks, .poison = true}));
  return contexts;
}

ProbeOutput probe_in(Communicator& group, const Context& context, const std::string& folder, int stage,
                     DType dtype = DType::f32) {
  Decoder decoder(ModelConfig::from_folder(folder), {});
  ShardedModel model(context, group, decoder, {.policy = Policy::stage(stage), .dtype = dtype});
  model.load(HfWeights(folder, decoder));
  const ProbeInput input = read_probe_input(context, folder + "/golden.safetensors", decoder.config().vocab_size);
  return probe(model, decoder, input, true);
}

ProbeOutput probe_alone(const std::string& folder, int stage, int64_t max_blocks = 0) {
  const auto self = make_self_communicator();
  return probe_in(*self, cuda_contexts(1, max_blocks)[0], folder, stage);
}

ProbeOutput probe_on(const std::string& folder, int ranks, int stage) {
  ProbeOutput result;
  run_ranks(cuda_contexts(ranks), [&](Communicator& group, const Context& context) {
    ProbeOutput output = probe_in(group, context, folder, stage);
    if (group.rank() == 0) result = std::move(output);
  });
  return result;
}

/// How far a token's logits in bf16 are from those of the golden folder in f32, by the length of the difference over
/// that of the logits: the median of all tokens, as a router may choose another expert for one of them.
double error_in_bf16(const std::string& folder, const Context& context) {
  const auto self = make_self_communicator();
  const ProbeOutput output = probe_in(*self, context, folder, 0, DType::bf16);
  const Tensor want = SafetensorsFile(folder + "/golden.safetensors").load("logits", *Context::reference().memory);
  const auto logits =
      std::find_if(output.begin(), output.end(), [](const auto& each) { return each.first == "logits"; });
  const Shape tokens{want.numel() / want.dim(-1), want.dim(-1)};
  const Tensor rows = want.reshape(tokens), got = logits->second.reshape(tokens);
  Samples errors;
  for (int64_t row = 0; row < rows.dim(0); ++row)
    errors.values.push_back(test::difference(got.slice(row, row + 1), rows.slice(row, row + 1)).relative_l2);
  return errors.median();
}

std::vector<std::vector<float>> values_of(const ProbeOutput& output) {
  std::vector<std::vector<float>> values;
  for (const auto& [name, tensor] : output) values.push_back(tensor.to_vector<float>());
  return values;
}

class CudaModels : public ::testing::TestWithParam<const char*> {};

TEST_P(CudaModels, logits_loss_and_gradients_are_those_of_hugging_face) {
  const std::string folder = golden_folder(GetParam()), golden = folder + "/golden.safetensors";
  for (const int stage : {0, 3}) {
    SCOPED_TRACE(stage);
    test::expect_all_golden(probe_alone(folder, stage), golden);
    test::expect_all_golden(probe_on(folder, 2, stage), golden);
  }
  test::expect_all_golden(probe_on(folder, 4, 3), golden);
}

TEST_P(CudaModels, in_bf16_they_are_as_close_as_those_of_a_cpu) {
  const std::string folder = golden_folder(GetParam());
  const double on_cpu = error_in_bf16(folder, Context::reference());
  EXPECT_GT(on_cpu, 0);
  EXPECT_LE(error_in_bf16(folder, cuda_contexts(1)[0]), 1.25 * on_cpu + 1e-3);
}

TEST_P(CudaModels, grids_and_the_order_of_threads_do_not_change_a_bit) {
  const std::string folder = golden_folder(GetParam());
  const auto expected = values_of(probe_alone(folder, 0));
  set_order(5);
  EXPECT_EQ(values_of(probe_alone(folder, 0, /*max_blocks=*/3)), expected);
  set_order(0);
}

// A GPU takes them all; the emulated one takes a thousand times as long.
#ifdef NOUGHT_CUDA_EMULATED
constexpr const char* kFamilies[] = {"open/llama",     "open/gpt2",        "open/gemma2",
                                     "open/qwen3_moe", "open/deepseek_v3", "open/gpt_oss"};
#else
constexpr const auto& kFamilies = test::kGoldenFamilies;
#endif
const auto name_of_folder = [](const auto& info) { return std::string(info.param).substr(5); };
INSTANTIATE_TEST_SUITE_P(Families, CudaModels, ::testing::ValuesIn(kFamilies), name_of_folder);
#ifndef NOUGHT_CUDA_EMULATED
INSTANTIATE_TEST_SUITE_P(Options, CudaModels, ::testing::ValuesIn(test::kGoldenOptions), name_of_folder);
#endif

class CudaLayouts : public ::testing::TestWithParam<const char*> {
 protected:
  /// Two steps, on a device for each rank or on the CPU.
  static test::TrainingResult run_on(const test::MeshLayout& layout, int64_t accumulation, bool on_device = true) {
    test::TrainingCase each{.model = test::small_model(GetParam()),
                            .mesh = layout,
                            .steps = {0, 2},
                            .rows = {.of_step = 4 * accumulation},
                            .accumulation = accumulation};
    if (on_device) each.contexts = cuda_contexts(layout.ranks());
    return each.run();
  }
};

TEST_P(CudaLayouts, stages_have_the_same_bits_on_two_ranks) {
  const test::TrainingResult first = run_on(test::sharded(2, 0), 1);
  expect_close(first, run_on(test::sharded(2, 0), 1, /*on_device=*/false));
  for (const int stage : {1, 2, 3}) expect_same_bits(run_on(test::sharded(2, stage), 1), first);
}

TEST_P(CudaLayouts, matrices_and_layers_on_two_ranks_are_those_of_one) {
  const test::TrainingResult alone = run_on({}, 2, /*on_device=*/false);
  expect_close(run_on({.sizes = {.tensor = 2}}, 2), alone);
  expect_close(run_on({.sizes = {.pipeline = 2}}, 2), alone);
}

INSTANTIATE_TEST_SUITE_P(Models, CudaLayouts, ::testing::Values("qk_norms", "shared_experts"), test::name_of_structure);

}  // namespace
}  // namespace nought::models_test
