#include "nought/data/dataset.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "nought/base/error.h"
#include "nought/data/token_file.h"
#include "nought/tensor/random.h"

namespace nought {

namespace fs = std::filesystem;

namespace {

void append_text(const fs::path& file, const Tokenizer& tokenizer, const CorpusOptions& corpus, TokenArray& tokens) {
  CorpusReader reader({file}, corpus, cut_point_of(tokenizer));
  while (const auto portion = reader.next()) append(encode_portion(*portion, corpus, tokenizer), tokens);
}

std::shared_ptr<const TokenStore> map_tokens(const fs::path& file, const Tokenizer& tokenizer) {
  auto tokens = std::make_shared<TokenFile>(file);
  require<ConfigError>(tokens->header().tokenizer == tokenizer.fingerprint(),
                       "{}: was written with another tokenizer, of {} tokens, than data.tokenizer \"{}\", of {}: name "
                       "the tokenizer that it was written with",
                       file.string(), tokens->header().vocab_size, tokenizer.name(), tokenizer.vocab_size());
  return tokens;
}

std::shared_ptr<const TokenStore> read_files(std::span<const fs::path> files, const Tokenizer& tokenizer,
                                             const CorpusOptions& corpus) {
  std::vector<std::shared_ptr<const TokenStore>> stores;
  std::shared_ptr<TokenArray> text;  // of neighbouring text files
  for (const fs::path& file : files) {
    if (file.extension() == kTokenFileExtension) {
      stores.push_back(map_tokens(file, tokenizer));
      text.reset();
      continue;
    }
    if (!text) stores.push_back(text = std::make_shared<TokenArray>(tokenizer.vocab_size()));
    append_text(file, tokenizer, corpus, *text);
  }
  if (stores.size() == 1) return stores.front();
  return std::make_shared<JoinedTokens>(std::move(stores));
}

/// Calls f(mask) with the masks of stretches of the tokens `range`, in order.
template <class F>
void for_each_mask(const TokenStore& tokens, Interval range, F&& f) {
  constexpr int64_t kStretch = int64_t{1} << 20;
  std::vector<uint8_t> mask;
  for (int64_t begin = range.begin; begin < range.end; begin += kStretch) {
    mask.resize(static_cast<size_t>(std::min(kStretch, range.end - begin)));
    tokens.read_mask(begin, mask);
    f(std::span<const uint8_t>(mask));
  }
}

/// Appends the lengths of the conversations in `range`.
void append_lengths(const TokenStore& tokens, Interval range, std::vector<int64_t>& lengths) {
  std::vector<int64_t> starts;
  tokens.document_starts(range, starts);
  for (size_t i = 0; i < starts.size(); ++i) {
    const Interval document{starts[i], i + 1 < starts.size() ? starts[i + 1] : range.end};
    bool masked = false;
    for_each_mask(tokens, document, [&](std::span<const uint8_t> mask) {
      masked = masked || std::find(mask.begin(), mask.end(), uint8_t{0}) != mask.end();
    });
    if (masked) lengths.push_back(document.size());
  }
}

}  // namespace

void append(const EncodedPortion& portion, TokenArray& tokens) {
  const std::span<const int32_t> ids(portion.ids);
  const std::span<const uint8_t> targets(portion.targets);
  size_t begin = 0;
  const auto append_until = [&](size_t end) {
    tokens.append(ids.subspan(begin, end - begin), targets.empty() ? targets : targets.subspan(begin, end - begin));
    begin = end;
  };
  for (const size_t start : portion.starts) {
    append_until(start);
    tokens.begin_document();
  }
  append_until(ids.size());
}

void check_token_files(std::span<const fs::path> files, const Tokenizer& tokenizer) {
  for (const fs::path& file : files)
    if (file.extension() == kTokenFileExtension) map_tokens(file, tokenizer);
}

TokenDataset::TokenDataset(const DatasetOptions& options) : options_(options) {
  require<ConfigError>(options.seq_length > 0, "seq_length must be positive, got {}", options.seq_length);
}

TokenDataset::TokenDataset(std::shared_ptr<const TokenStore> tokens, Interval range, int64_t seq_length)
    : TokenDataset(DatasetOptions{.seq_length = seq_length}) {
  sources_.push_back({std::move(tokens), range, 0});
}

TokenDataset TokenDataset::from_sources(std::span<const DataSource> sources, const Tokenizer& tokenizer,
                                        const DatasetOptions& options) {
  TokenDataset dataset(options);
  for (const DataSource& source : sources) {
    require<ConfigError>(std::isfinite(source.weight) && source.weight >= 0, "the weight {} of data is not positive",
                         source.weight);
    auto tokens = read_files(source.files, tokenizer, options.corpus);
    const Interval range{0, tokens->size()};
    dataset.sources_.push_back({std::move(tokens), range, source.weight});
  }
  return dataset;
}

int64_t TokenDataset::num_samples(const SourceTokens& source) const {
  const int64_t targets = std::max<int64_t>(source.range.size() - 1, 0);
  return options_.keep_remainder ? ceil_div(targets, options_.seq_length) : targets / options_.seq_length;
}

int64_t TokenDataset::num_tokens() const {
  return std::accumulate(sources_.begin(), sources_.end(), int64_t{0},
                         [](int64_t sum, const SourceTokens& source) { return sum + source.range.size(); });
}

int64_t TokenDataset::num_samples() const {
  return std::accumulate(sources_.begin(), sources_.end(), int64_t{0},
                         [&](int64_t sum, const SourceTokens& source) { return sum + num_samples(source); });
}

TokenDataset::SampleTokens TokenDataset::tokens_of(int64_t index) const {
  int64_t within = index;
  for (const SourceTokens& source : sources_) {
    if (within >= 0 && within < num_samples(source)) {
      const int64_t begin = source.range.begin + within * options_.seq_length;
      return {&source, begin, std::min(options_.seq_length, source.range.end - 1 - begin)};
    }
    within -= num_samples(source);
  }
  fail<Error>("sample {} is not among the {} of the data", index, num_samples());
}

void TokenDataset::sample(int64_t index, std::span<int32_t> inputs, std::span<int32_t> targets) const {
  const SampleTokens from = tokens_of(index);
  const auto length = static_cast<size_t>(options_.seq_length);
  require<Error>(inputs.size() == length && targets.size() == length, "a sample has {} tokens, room is for {} and {}",
                 length, inputs.size(), targets.size());
  const auto held = static_cast<size_t>(from.length);
  from.source->tokens->read(from.begin, inputs.first(held));
  from.source->tokens->read(from.begin + 1, targets.first(held));
  std::fill(inputs.begin() + from.length, inputs.end(), 0);
  std::fill(targets.begin() + from.length, targets.end(), kIgnoredTarget);
  if (nothing_is_masked()) return;
  const std::vector<uint8_t> mask = target_mask(from);
  for (size_t i = 0; i < held; ++i) {
    if (!mask[i]) targets[i] = kIgnoredTarget;
  }
}

std::vector<uint8_t> TokenDataset::target_mask(const SampleTokens& from) const {
  std::vector<uint8_t> mask(static_cast<size_t>(from.length), 1);
  from.source->tokens->read_mask(from.begin + 1, mask);
  if (!options_.separate_documents) return mask;
  std::vector<int64_t> starts;
  from.source->tokens->document_starts({from.begin + 1, from.begin + 1 + from.length}, starts);
  for (const int64_t start : starts) mask[static_cast<size_t>(start - from.begin - 1)] = 0;
  return mask;
}

std::vector<int32_t> TokenDataset::document_starts(int64_t index) const {
  const SampleTokens from = tokens_of(index);
  std::vector<int64_t> positions;
  from.source->tokens->document_starts({from.begin + 1, from.begin + from.length}, positions);
  std::vector<int32_t> starts{0};
  for (const int64_t position : positions) starts.push_back(static_cast<int32_t>(position - from.begin));
  return starts;
}

int64_t TokenDataset::num_targets(int64_t index) const {
  const SampleTokens from = tokens_of(index);
  if (nothing_is_masked()) return from.length;
  const std::vector<uint8_t> mask = target_mask(from);
  return std::count(mask.begin(), mask.end(), uint8_t{1});
}

int64_t TokenDataset::num_targets() const {
  int64_t count = 0;
  for (const SourceTokens& source : sources_) {
    const int64_t begin = source.range.begin + 1, all = num_samples(source) * options_.seq_length;
    const Interval targets{begin, std::max(begin, std::min(begin + all, source.range.end))};
    if (!source.tokens->has_mask() && !options_.separate_documents) {
      count += targets.size();
      continue;
    }
    std::vector<int64_t> starts;
    if (options_.separate_documents) source.tokens->document_starts(targets, starts);
    int64_t position = targets.begin;
    auto start = starts.begin();
    for_each_mask(*source.tokens, targets, [&](std::span<const uint8_t> mask) {
      count += std::count(mask.begin(), mask.end(), uint8_t{1});
      const int64_t end = position + static_cast<int64_t>(mask.size());
      for (; start != starts.end() && *start < end; ++start) count -= mask[static_cast<size_t>(*start - position)];
      position = end;
    });
  }
  return count;
}

ConversationLengths TokenDataset::conversation_lengths() const {
  std::vector<int64_t> lengths;
  for (const SourceTokens& source : sources_)
    if (source.tokens->has_mask()) append_lengths(*source.tokens, source.range, lengths);
  if (lengths.empty()) return {};
  std::sort(lengths.begin(), lengths.end());
  const auto above = std::upper_bound(lengths.begin(), lengths.end(), options_.seq_length);
  return {.count = static_cast<int64_t>(lengths.size()),
          .longer = lengths.end() - above,
          .longest = lengths.back(),
          .most_of_99 = lengths[(lengths.size() * 99 + 99) / 100 - 1]};
}

bool TokenDataset::nothing_is_masked() const {
  return !options_.separate_documents && std::none_of(sources_.begin(), sources_.end(), [](const SourceTokens& source) {
    return source.tokens->has_mask();
  });
}

bool TokenDataset::all_targets_count() const { return nothing_is_masked() && !options_.keep_remainder; }

std::vector<SourceShare> TokenDataset::shares() const {
  std::vector<SourceShare> shares;
  for (const SourceTokens& source : sources_) shares.push_back({num_samples(source), source.weight});
  return normalized(std::move(shares));
}

std::pair<TokenDataset, TokenDataset> TokenDataset::split_tail(double fraction) const {
  require<ConfigError>(fraction >= 0 && fraction < 1, "validation_fraction must be in [0, 1), got {}", fraction);
  std::pair<TokenDataset, TokenDataset> result(*this, *this);
  int64_t kept_out = 0;
  for (size_t i = 0; i < sources_.size(); ++i) {
    const Interval range = sources_[i].range;
    const int64_t samples = num_samples(sources_[i]);
    const auto tail = static_cast<int64_t>(std::round(fraction * static_cast<double>(samples)));
    const int64_t cut = range.begin + (samples - tail) * options_.seq_length;
    // The token at the cut is the last target before it and the first input behind it.
    result.first.sources_[i].range.end = tail > 0 ? cut + 1 : range.end;
    result.second.sources_[i].range.begin = tail > 0 ? cut : range.end;
    kept_out += tail;
  }
  require<ConfigError>(fraction == 0 || kept_out > 0,
                       "validation_fraction {} of {} samples is less than one; use more data or a larger fraction",
                       fraction, num_samples());
  return result;
}

TokenDataset TokenDataset::with_remainder() const {
  TokenDataset whole = *this;
  whole.options_.keep_remainder = true;
  return whole;
}

void TokenDataset::require_batch(int64_t samples) const {
  require<ConfigError>(num_samples() >= samples,
                       "the data has {} tokens, {} samples of {}; one batch needs {} samples, that is {} tokens: add "
                       "data, or lower seq_length or the batch size",
                       num_tokens(), num_samples(), seq_length(), samples, samples * seq_length() + 1);
}

uint64_t TokenDataset::fingerprint() const {
  if (sources_.size() == 1 && sources_[0].weight == 0) return sources_[0].tokens->fingerprint(sources_[0].range);
  uint64_t hash = sources_.size();
  for (const SourceTokens& source : sources_) {
    const std::pair<uint64_t, double> key{source.tokens->fingerprint(source.range), source.weight};
    hash = stable_hash({reinterpret_cast<const char*>(&key), sizeof(key)}, hash);
  }
  return hash;
}

}  // namespace nought
