// A probe without gradients holds parameters and activations alone, and sees what one with gradients sees.
#include "nought/train/probe.h"

#include "support/golden_case.h"

#include "nought/comm/thread.h"
#include "nought/weights/hf_folder.h"

namespace nought::probe_test {
namespace {

TEST(Probe, without_gradients_there_are_no_gradients_masters_or_moments) {
  const std::string folder = test::golden_folder("open/llama_gqa");
  for (const int stage : {0, 3}) {
    run_ranks(2, [&](Communicator& ranks, const Context&) {
      RunPlan plan;
      plan.layout.zero_stage = stage, plan.layout.sharding.dtype = DType::bf16,
      plan.layout.sharding.gradient_dtype = DType::f32;
      std::vector<std::vector<float>> seen;
      std::vector<int64_t> parameter_bytes;
      for (const bool gradients : {true, false}) {
        const Context context = Context::cpu();
        Decoder decoder(ModelConfig::from_folder(folder));
        ShardedModel model(context, ranks, decoder, probe_sharding(plan, gradients));
        model.load(HfWeights(folder, decoder));
        const ProbeInput input = read_probe_input(context, folder + "/golden.safetensors", decoder.config().vocab_size);
        const ProbeOutput output = probe(model, decoder, input, gradients);
        const MemoryLedger& ledger = context.memory->ledger();
        EXPECT_EQ(ledger.peak(Category::gradients) > 0, gradients);
        EXPECT_EQ(ledger.peak(Category::optimizer) > 0, gradients);
        parameter_bytes.push_back(ledger.current(Category::parameters));
        for (const auto& [name, tensor] : output)
          if (name == "logits" || name == "loss") seen.push_back(tensor.to_vector<float>());
      }
      EXPECT_EQ(parameter_bytes[0], parameter_bytes[1]);
      if (ranks.rank() != 0) return;
      ASSERT_EQ(seen.size(), 4u);
      EXPECT_EQ(seen[0], seen[2]);
      EXPECT_EQ(seen[1], seen[3]);
    });
  }
}

}  // namespace
}  // namespace nought::probe_test
