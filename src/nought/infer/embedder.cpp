#include "nought/infer/embedder.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "nought/base/error.h"
#include "nought/io/safetensors_writer.h"
#include "nought/text/normalizer.h"

namespace nought {

namespace {

double activated(DenseActivation activation, double x) {
  switch (activation) {
    case DenseActivation::identity:
      return x;
    case DenseActivation::tanh:
      return std::tanh(x);
    case DenseActivation::relu:
      return std::max(x, 0.0);
    case DenseActivation::gelu:
      return x * std::erfc(-x / std::sqrt(2.0)) / 2;
    case DenseActivation::sigmoid:
      return 1 / (1 + std::exp(-x));
    case DenseActivation::silu:
      return x / (1 + std::exp(-x));
  }
  return x;
}

std::vector<float> through(const DenseModule& dense, const std::vector<float>& x) {
  std::vector<float> y(static_cast<size_t>(dense.weight.dim(0)));
  for (size_t i = 0; i < y.size(); ++i) {
    const float* row = dense.weight.data<float>() + i * x.size();
    const double bias = dense.bias.defined() ? dense.bias.data<float>()[i] : 0;
    y[i] = static_cast<float>(
        activated(dense.activation, std::inner_product(x.begin(), x.end(), row, bias, std::plus<>(),
                                                       [](float a, float b) { return double{a} * double{b}; })));
  }
  return y;
}

/// At length 1, as torch's normalize() has it.
void normalise(std::vector<float>& x) {
  constexpr double kLeast = 1e-12;
  double squares = 0;
  for (const float each : x) squares += double{each} * double{each};
  const double length = std::max(std::sqrt(squares), kLeast);
  for (float& each : x) each = static_cast<float>(each / length);
}

}  // namespace

Embedder::Embedder(const EmbeddingConfig& config, Decoder& decoder, const Tokenizer& tokenizer, const Context& context)
    : config_(config), decoder_(decoder), tokenizer_(tokenizer), context_(context) {
  const ModelConfig& model = decoder.config();
  require(!config.pooling.empty(), "an embedder without a pooling");
  dimensions_ = model.hidden_size * std::ssize(config.pooling);
  for (const EmbeddingStep& step : config.steps) {
    if (!step.dense) continue;
    require<ConfigError>(step.dense->weight.dim(1) == dimensions_,
                         "{}: a dense layer reads vectors of {} elements, and gets {}", config.model.string(),
                         step.dense->weight.dim(1), dimensions_);
    dimensions_ = step.dense->weight.dim(0);
  }
  max_tokens_ = most_tokens(config, model, tokenizer);
}

int64_t Embedder::most_tokens(const EmbeddingConfig& config, const ModelConfig& model, const Tokenizer& tokenizer) {
  int64_t most = config.max_tokens.value_or(model.max_positions);
  if (model.positions == PositionKind::learned) most = std::min(most, model.max_positions);
  const int64_t special = std::ssize(tokenizer.prefix()) + std::ssize(tokenizer.suffix());
  require<ConfigError>(most > special, "texts of at most {} tokens have none beside the {} special ones", most,
                       special);
  return most;
}

EmbeddedText Embedder::tokens(std::string_view prompt, std::string_view text) const {
  const auto prefix = tokenizer_.prefix(), suffix = tokenizer_.suffix();
  const auto ids_of = [&](std::string whole) {
    if (config_.lowercase) make_lowercase()->apply(whole);
    return tokenizer_.encode(whole, {.specials = true});
  };
  std::vector<int32_t> ids = ids_of(std::string(prompt).append(text));
  EmbeddedText result;
  const int64_t room = max_tokens_ - std::ssize(prefix) - std::ssize(suffix);
  if (result.cut = std::ssize(ids) > room; result.cut)
    ids.erase(config_.cuts_left ? ids.begin() : ids.begin() + room, config_.cuts_left ? ids.end() - room : ids.end());
  result.ids.assign(prefix.begin(), prefix.end());
  result.ids.insert(result.ids.end(), ids.begin(), ids.end());
  result.ids.insert(result.ids.end(), suffix.begin(), suffix.end());
  if (!config_.include_prompt && !prompt.empty())
    result.begin = std::min(std::ssize(prefix) + std::ssize(ids_of(std::string(prompt))), std::ssize(result.ids) - 1);
  return result;
}

std::vector<float> Embedder::embed(std::span<const EmbeddedText> texts, int64_t batch) const {
  std::vector<size_t> order(texts.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return texts[a].ids.size() > texts[b].ids.size(); });
  // Where the length of a row decides how its tokens rotate, it is that of one text.
  const auto most = static_cast<size_t>(decoder_.config().rotates_by_row() ? 1 : batch);
  std::vector<float> vectors(texts.size() * static_cast<size_t>(dimensions_));
  for (size_t begin = 0; begin < order.size(); begin += most) {
    std::vector<const EmbeddedText*> some;
    std::vector<float*> places;
    for (size_t i = begin; i < std::min(begin + most, order.size()); ++i) {
      some.push_back(&texts[order[i]]);
      places.push_back(vectors.data() + order[i] * static_cast<size_t>(dimensions_));
    }
    embed_batch(some, places);
  }
  return vectors;
}

std::vector<float> Embedder::hidden_of(std::span<const EmbeddedText* const> texts) const {
  std::vector<int32_t> ids, starts;
  for (const EmbeddedText* text : texts) {
    require<ConfigError>(!text->ids.empty(), "a text without tokens has no vector");
    starts.push_back(static_cast<int32_t>(ids.size()));
    ids.insert(ids.end(), text->ids.begin(), text->ids.end());
  }
  const Batch batch{.input_ids = Tensor::of<int32_t>(*context_.memory, {1, std::ssize(ids)}, ids),
                    .targets = {},
                    .document_starts = {starts}};
  const Tensor hidden = decoder_.hidden(context_, batch);
  const Tensor wide = context_.empty(hidden.shape(), DType::f32, Category::workspace);
  context_.run(Cast{.x = hidden, .y = wide});
  return context_.to_host<float>(wide);
}

void Embedder::embed_batch(std::span<const EmbeddedText* const> texts, std::span<float* const> vectors) const {
  const int64_t width = decoder_.config().hidden_size;
  const std::vector<float> hidden = hidden_of(texts);
  const float* of_text = hidden.data();
  for (size_t i = 0; i < texts.size(); ++i) {
    const int64_t length = std::ssize(texts[i]->ids), first = texts[i]->begin;
    std::vector<float> vector;
    for (const PoolingMode mode : config_.pooling) {
      StatePool pool(mode, width, first);
      pool.add({of_text + first * width, static_cast<size_t>((length - first) * width)});
      const std::vector<float> pooled = pool.result();
      vector.insert(vector.end(), pooled.begin(), pooled.end());
    }
    for (const EmbeddingStep& step : config_.steps)
      step.dense ? void(vector = through(*step.dense, vector)) : normalise(vector);
    std::copy(vector.begin(), vector.end(), vectors[i]);
    of_text += length * width;
  }
}

void save_embeddings(const std::filesystem::path& file, std::span<const float> vectors,
                     std::span<const EmbeddedText> texts, bool token_counts) {
  const auto memory = Memory::create();
  const int64_t count = std::ssize(texts);
  std::vector<std::pair<std::string, Tensor>> tensors{
      {"embeddings", Tensor::of<float>(*memory, {count, std::ssize(vectors) / count}, vectors)}};
  if (token_counts) {
    std::vector<int64_t> counts;
    for (const EmbeddedText& text : texts) counts.push_back(std::ssize(text.ids));
    tensors.emplace_back("token_counts", Tensor::of<int64_t>(*memory, {count}, counts));
  }
  save_safetensors(file, tensors);
}

}  // namespace nought
