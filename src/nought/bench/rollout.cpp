#include "nought/infer/rollout.h"

#include <numeric>

#include "nought/bench/bench.h"
#include "nought/zero/state.h"

namespace nought {

ModelConfig rollout_shape() {
  return ModelConfig::from_json({{"model_type", "llama"},
                                 {"vocab_size", 8192},
                                 {"hidden_size", 512},
                                 {"intermediate_size", 1376},
                                 {"num_hidden_layers", 8},
                                 {"num_attention_heads", 8},
                                 {"max_position_embeddings", 4096}});
}

Figure bench_rollout(Communicator& self, const Context& context, DType dtype, int samples, const ModelConfig& config,
                     const RolloutShape& shape) {
  require<ConfigError>(shape.generations > 1 && shape.prompt > 1 && shape.answer > 0,
                       "expected 2 answers or more of at least 1 token to prompts of at least 2, got {} of {} to {}",
                       shape.generations, shape.answer, shape.prompt);
  require<ConfigError>(shape.prompt + shape.answer <= config.max_positions,
                       "--prompt and --answer exceed the {} positions of the model", config.max_positions);
  const Mesh mesh(self, GridSizes{});
  Decoder decoder(config, {}, {}, ModelRanks(mesh));
  ShardedModel model(context, mesh, decoder, {.dtype = dtype, .training = false});
  model.load(InitialState(1));
  const auto vocab = static_cast<int32_t>(config.vocab_size);
  std::vector<std::vector<int32_t>> prompts;  // the last are the same
  for (int64_t i = 0; i <= shape.generations; ++i) {
    std::vector<int32_t>& prompt = prompts.emplace_back(static_cast<size_t>(shape.prompt));
    for (size_t at = 0; at < prompt.size(); ++at)
      prompt[at] = (static_cast<int32_t>(at) + static_cast<int32_t>(i)) % vocab;
  }
  const auto seconds = [&](bool same) {
    std::vector<AnswerRequest> requests;
    for (int64_t i = 0; i < shape.generations; ++i)
      requests.push_back({prompts[static_cast<size_t>(same ? shape.generations : i)], static_cast<uint64_t>(i)});
    return seconds_of([&] {
      write_answers(decoder, context, dtype, requests, {.max_completion_length = shape.answer});
      context.stream->synchronize();
    });
  };
  Figure figure{
      .name = fmt::format("{} answers of {} tokens to one prompt of {}", shape.generations, shape.answer, shape.prompt),
      .work = static_cast<double>(shape.generations * shape.answer),
      .unit = "tokens",
      .limit_name = "prompts of their own",
      .limited_unit = "tokens"};
  measure(
      figure, samples, 0, [&] { return figure.work / seconds(/*same=*/false); }, [&] { seconds(/*same=*/true); });
  return figure;
}

}  // namespace nought
