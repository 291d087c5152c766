#include <algorithm>

#include "nought/base/text.h"
#include "nought/bench/bench.h"
#include "nought/models/decoder.h"
#include "nought/models/flops.h"
#include "nought/tensor/random.h"
#include "nought/train/engine.h"
#include "nought/zero/state.h"

namespace nought {

namespace {

ModelConfig gpt2_124m() {
  return ModelConfig::from_json({{"model_type", "gpt2"},
                                 {"vocab_size", 50304},
                                 {"n_embd", 768},
                                 {"n_layer", 12},
                                 {"n_head", 12},
                                 {"n_positions", 1024}});
}

ModelConfig llama_100m() {
  return ModelConfig::from_json({{"model_type", "llama"},
                                 {"vocab_size", 32000},
                                 {"hidden_size", 768},
                                 {"intermediate_size", 2048},
                                 {"num_hidden_layers", 12},
                                 {"num_attention_heads", 12},
                                 {"num_key_value_heads", 4},
                                 {"max_position_embeddings", 2048},
                                 {"tie_word_embeddings", true}});
}

/// Tokens that are a function of (step, rank, index).
Batch random_batch(const StepBench& bench, const Context& context, int rank, int ranks, int64_t step) {
  Batch batch = empty_batch(bench.micro_batch, bench.seq_length, *context.memory);
  const auto key = static_cast<uint64_t>(step * ranks + rank);
  uint64_t index = 0;
  for (const Tensor& tensor : {batch.input_ids, batch.targets})
    for (int32_t& token : tensor.span<int32_t>())
      token = static_cast<int32_t>(philox(key, index++)[0] % static_cast<uint64_t>(bench.config.vocab_size));
  return batch;
}

}  // namespace

StepBench named_step(const std::string& name) {
  StepBench bench{.name = name};
  bench.sharding = {.dtype = DType::bf16, .gradient_dtype = DType::bf16, .overlap = true, .optimizer = {}};
  if (name == "W1" || name == "W3") {
    bench.config = gpt2_124m();
    bench.micro_batch = 4, bench.seq_length = name == "W1" ? 1024 : 64;
  } else if (name == "W2") {
    bench.config = llama_100m();
    bench.micro_batch = 2, bench.seq_length = 2048;
  } else {
    fail<ConfigError>("unknown work {}: W1, W2 or W3", name);
  }
  return bench;
}

Figure bench_step(Communicator& ranks, const Context& context, const Limits& limits, const StepBench& bench,
                  int samples) {
  Decoder decoder(bench.config, bench.recompute);
  ShardedModel model(context, ranks, decoder, bench.sharding);
  model.load(InitialState(1));
  Engine engine(model);
  const auto tokens = static_cast<double>(ranks.size() * bench.micro_batch * bench.seq_length);
  Figure figure{.name = bench.name, .work = tokens, .unit = "tokens", .limit_name = "matrix peak"};
  figure.limited_work = tokens * training_flops_per_token(bench.config, bench.seq_length);
  int64_t made = 0;
  const auto step = [&] {
    const Batch batch = random_batch(bench, context, ranks.rank(), ranks.size(), made++);
    engine.step(std::span(&batch, 1), static_cast<int64_t>(tokens), /*lr=*/1e-4, /*max_norm=*/1);
    model.settle();
  };
  const auto peak_of_all = [&] {
    ranks.barrier().wait();
    double peak = limits.matrix(bench.sharding.dtype);
    model.sum_over_ranks(std::span(&peak, 1));
    return peak;
  };
  step(), step();  // buffers are allocated, and pages touched, in these
  for (int i = 0; i < samples; ++i) {
    figure.limits.values.push_back(peak_of_all());
    figure.seconds.values.push_back(seconds_of(step));
  }
  return figure;
}

}  // namespace nought
