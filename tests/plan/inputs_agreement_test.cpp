// What is predicted of saved inputs in files is what happens: memory, files and bytes that move, of every rank of a
// pipeline too.
#include <algorithm>

#include "support/agreement.h"
#include "support/size.h"
#include "support/temp_folder.h"
#include <gtest/gtest.h>

#include "nought/plan/step_time.h"

namespace nought::inputs_agreement_test {
namespace {

NOUGHT_FILE_SIZE(medium);

TEST(InputsAgreement, holds_to_the_byte_in_memory_and_in_files) {
  const test::TempFolder folder;
  const auto activations = static_cast<size_t>(Category::activations);
  RecomputeOptions each = Recompute::full, grouped = Recompute::full, shared = Recompute::full,
                   quantized = Recompute::full;
  grouped.checkpoints = 2, shared.partitioned = true, quantized.partitioned = quantized.fp8 = true;
  struct Case {
    RecomputeOptions recompute;
    int stage = 0, tensor_ranks = 1, data_ranks = 1;
    int64_t accumulation = 1;
    Pipeline pipeline = {};
    Pool parameters = Pool::device;
  };
  for (const Case& of : {Case{.recompute = each}, Case{.recompute = grouped, .accumulation = 5},
                         Case{.recompute = each, .stage = 3, .data_ranks = 2},
                         Case{.recompute = shared, .tensor_ranks = 2, .accumulation = 2},
                         Case{.recompute = quantized, .tensor_ranks = 2},
                         Case{.recompute = each, .accumulation = 4, .pipeline = {.ranks = 2}},
                         Case{.recompute = each, .stage = 3, .accumulation = 2, .parameters = Pool::file}}) {
    Layout layout{.ranks = of.tensor_ranks * of.data_ranks * static_cast<int>(of.pipeline.ranks),
                  .zero_stage = of.stage,
                  .tensor_ranks = of.tensor_ranks,
                  .pipeline = of.pipeline,
                  .micro_batch = 2,
                  .seq_length = 128,
                  .accumulation = of.accumulation,
                  .recompute = of.recompute,
                  .sharding = {.dtype = DType::bf16, .gradient_dtype = DType::bf16},
                  .wire = Wire::threads};
    layout.recompute.tier.pool = Pool::file, layout.recompute.tier.folder = folder.path().string();
    if (of.parameters == Pool::file)
      layout.sharding.offload_param = {.tier = {Pool::file, folder.path().string()}, .buffers = 2};
    SCOPED_TRACE(fmt::format("{} on {} ranks", layout.str(), layout.ranks));
    const ModelConfig config = test::model_of("llama", /*least_layers=*/4);
    const std::vector<Prediction> predicted = predict_places(config, layout);
    const std::vector<test::Measurement> measured = test::measure_places(config, layout);
    ASSERT_EQ(predicted.size(), measured.size());
    for (size_t place = 0; place < measured.size(); ++place) {
      test::expect_agreement(predicted[place], measured[place]);
      EXPECT_EQ(measured[place].late_allocations, 0);
      EXPECT_EQ(predicted[place].memory.peak, measured[place].memory.peak);
      EXPECT_EQ(predicted[place].memory.peak_total, measured[place].memory.peak_total);
      EXPECT_GT(predicted[place].memory.file[activations], 0);
      EXPECT_EQ(predicted[place].of_inputs.read, predicted[place].of_inputs.written);
      // Each micro-batch of a rank keeps an input of each block, or of each checkpoint.
      const int64_t inputs = (of.recompute.checkpoints > 0 ? 2 : 4) / of.pipeline.ranks * of.accumulation;
      const int64_t elements = layout.micro_batch * layout.seq_length * config.hidden_size / of.tensor_ranks;
      EXPECT_EQ(predicted[place].of_inputs.written,
                inputs * (of.recompute.fp8 ? elements + elements / kMxBlock : 2 * elements));
    }
    const StepTime time = step_time(config, predicted[0], {.flops = 1e9, .memory = 1e9, .read = 1e6, .write = 1e6});
    const auto read = std::find_if(time.parts.begin(), time.parts.end(),
                                   [](const StepPart& part) { return part.name == "saved inputs from files"; });
    ASSERT_NE(read, time.parts.end());
    EXPECT_EQ(read->amount, static_cast<double>(predicted[0].of_inputs.read));
    EXPECT_EQ(time.crossing.back().source, "files");
  }
}

/// What leaves memory is all but a few inputs, however many blocks there are.
TEST(InputsAgreement, memory_does_not_grow_with_the_blocks) {
  Layout layout{.micro_batch = 4, .seq_length = 128, .recompute = Recompute::full, .wire = Wire::threads};
  const auto activations = [&](Pool pool, int64_t blocks) {
    const ModelConfig config = test::model_of("llama", /*least_layers=*/blocks);
    layout.recompute.tier.pool = pool, layout.recompute.tier.folder = "/nowhere";
    return predict(config, layout).memory.peak[static_cast<size_t>(Category::activations)];
  };
  EXPECT_EQ(activations(Pool::file, 12), activations(Pool::file, 6));
  EXPECT_GT(activations(Pool::device, 12), activations(Pool::device, 6));
}

}  // namespace
}  // namespace nought::inputs_agreement_test
