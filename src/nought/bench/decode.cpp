#include <numeric>

#include "nought/bench/bench.h"
#include "nought/zero/state.h"

namespace nought {

namespace {

/// What a step of decoding reads: the weights but for rows that are looked up, and the held part of the cache.
double bytes_read(const ModelConfig& config, DType dtype, const DecoderCache& cache, int64_t sequences, int64_t held) {
  const int64_t looked_up = config.tie_word_embeddings ? 0 : config.vocab_size * config.hidden_size;
  int64_t of_token = 0;
  for (const KvCache& layer : cache.layers) of_token += (layer.k.bytes() + layer.v.bytes()) / layer.k.dim(0);
  return static_cast<double>((config.parameter_count() - looked_up) * size_of(dtype) + sequences * held * of_token);
}

/// The next tokens of `sequences` sequences that hold `context_length` tokens each.
Figure decode_figure(Decoder& decoder, const Context& context, const Limits& limits, DType dtype, int samples,
                     int64_t sequences, int64_t context_length) {
  DecoderCache cache = decoder.make_cache(context, context_length + 1, dtype, sequences);
  std::vector<int32_t> prompt(static_cast<size_t>(context_length));
  std::iota(prompt.begin(), prompt.end(), 1);
  std::vector<NextTokens> prompts, next;
  for (int64_t i = 0; i < sequences; ++i)
    prompts.push_back({i, prompt}), next.push_back({i, std::span(prompt).first(1)});
  for (const NextTokens& each : prompts) decoder.next_logits(context, {&each, 1}, cache);
  const auto step = [&] {
    for (int64_t i = 0; i < sequences; ++i) decoder.keep_first(cache, i, context_length);
    decoder.next_logits(context, next, cache);
    context.stream->synchronize();
  };
  Figure figure{.name = fmt::format("{} sequence{} of {} tokens", sequences, sequences == 1 ? "" : "s", context_length),
                .work = static_cast<double>(sequences),
                .unit = "tokens",
                .limit_name = "triad",
                .limited_work = bytes_read(decoder.config(), dtype, cache, sequences, context_length + 1),
                .limited_unit = "B"};
  measure(figure, samples, 0.2, limits.memory, step);
  return figure;
}

}  // namespace

ModelConfig decode_shape() {
  return ModelConfig::from_json({{"model_type", "llama"},
                                 {"vocab_size", 32000},
                                 {"hidden_size", 2048},
                                 {"intermediate_size", 5632},
                                 {"num_hidden_layers", 22},
                                 {"num_attention_heads", 32},
                                 {"num_key_value_heads", 4},
                                 {"max_position_embeddings", 8192}});
}

std::vector<Figure> bench_decode(Communicator& self, const Context& context, const Limits& limits, DType dtype,
                                 int samples, const ModelConfig& config, int64_t context_length) {
  require<ConfigError>(1 <= context_length && context_length < config.max_positions,
                       "--context must be 1 to {}, got {}", config.max_positions - 1, context_length);
  const Mesh mesh(self, GridSizes{});
  Decoder decoder(config, {}, {}, ModelRanks(mesh));
  ShardedModel model(context, mesh, decoder, {.dtype = dtype, .training = false});
  model.load(InitialState(1));
  std::vector<Figure> figures;
  for (const int64_t sequences : {1, 8, 32})
    figures.push_back(decode_figure(decoder, context, limits, dtype, samples, sequences, context_length));
  return figures;
}

}  // namespace nought
