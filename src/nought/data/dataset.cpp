#include "nought/data/dataset.h"

#include <algorithm>
#include <cmath>

#include "nought/base/error.h"
#include "nought/data/files.h"
#include "nought/tensor/random.h"

namespace nought {

namespace {

constexpr size_t kBlock = size_t{1} << 20;  // bytes encoded, and tokens hashed, at a time

}  // namespace

TokenArray::TokenArray(int64_t vocab_size) {
  if (vocab_size <= 256) {
    values_ = std::vector<uint8_t>();
  } else if (vocab_size <= 65536) {
    values_ = std::vector<uint16_t>();
  } else {
    values_ = std::vector<int32_t>();
  }
}

void TokenArray::append(std::span<const int32_t> tokens) {
  std::visit(
      [&](auto& values) {
        using T = typename std::decay_t<decltype(values)>::value_type;
        for (int32_t token : tokens) values.push_back(static_cast<T>(token));
      },
      values_);
}

int64_t TokenArray::size() const {
  return std::visit([](const auto& values) { return static_cast<int64_t>(values.size()); }, values_);
}

int64_t TokenArray::bytes() const {
  return std::visit([](const auto& values) { return static_cast<int64_t>(values.size() * sizeof(values[0])); },
                    values_);
}

void TokenArray::read(int64_t begin, std::span<int32_t> out) const {
  require<Error>(0 <= begin && begin + static_cast<int64_t>(out.size()) <= size(), "tokens [{}, {}) leave {}", begin,
                 begin + static_cast<int64_t>(out.size()), size());
  std::visit([&](const auto& values) { std::copy_n(values.begin() + begin, out.size(), out.begin()); }, values_);
}

TokenDataset::TokenDataset(std::shared_ptr<const TokenArray> tokens, Interval range, int64_t seq_length)
    : tokens_(std::move(tokens)), range_(range), seq_length_(seq_length) {
  require<ConfigError>(seq_length > 0, "seq_length must be positive, got {}", seq_length);
}

TokenDataset TokenDataset::from_files(std::span<const std::filesystem::path> files, const Tokenizer& tokenizer,
                                      int64_t seq_length) {
  const auto tokens = std::make_shared<TokenArray>(tokenizer.vocab_size());
  std::vector<int32_t> ids;
  for (const std::filesystem::path& file : files) {
    const std::string text = read_text(file);
    const size_t block = tokenizer.cuts_anywhere() ? kBlock : std::max<size_t>(text.size(), 1);
    for (size_t begin = 0; begin < text.size(); begin += block) {
      ids.clear();
      tokenizer.encode(std::string_view(text).substr(begin, block), ids);
      tokens->append(ids);
    }
    tokens->append(std::vector<int32_t>{tokenizer.separator()});
  }
  return TokenDataset(tokens, {0, tokens->size()}, seq_length);
}

int64_t TokenDataset::num_samples() const { return std::max<int64_t>(num_tokens() - 1, 0) / seq_length_; }

void TokenDataset::sample(int64_t index, std::span<int32_t> inputs, std::span<int32_t> targets) const {
  require<Error>(0 <= index && index < num_samples(), "sample {} is not among the {} of the data", index,
                 num_samples());
  const auto length = static_cast<size_t>(seq_length_);
  require<Error>(inputs.size() == length && targets.size() == length, "a sample has {} tokens, room is for {} and {}",
                 length, inputs.size(), targets.size());
  const int64_t begin = range_.begin + index * seq_length_;
  tokens_->read(begin, inputs);
  tokens_->read(begin + 1, targets);
}

std::pair<TokenDataset, TokenDataset> TokenDataset::split_tail(double fraction) const {
  require<ConfigError>(fraction >= 0 && fraction < 1, "validation_fraction must be in [0, 1), got {}", fraction);
  const auto samples = static_cast<int64_t>(std::round(fraction * static_cast<double>(num_samples())));
  require<ConfigError>(fraction == 0 || samples > 0,
                       "validation_fraction {} of {} samples is less than one; use more data or a larger fraction",
                       fraction, num_samples());
  const int64_t cut = range_.begin + (num_samples() - samples) * seq_length_;
  // The token at the cut is the last target before it and the first input behind it.
  return {TokenDataset(tokens_, {range_.begin, samples > 0 ? cut + 1 : range_.end}, seq_length_),
          TokenDataset(tokens_, {samples > 0 ? cut : range_.end, range_.end}, seq_length_)};
}

void TokenDataset::require_batch(int64_t samples) const {
  require<ConfigError>(num_samples() >= samples,
                       "the data has {} tokens, {} samples of {}; one batch needs {} samples, that is {} tokens: add "
                       "data, or lower seq_length or the batch size",
                       num_tokens(), num_samples(), seq_length_, samples, samples * seq_length_ + 1);
}

uint64_t TokenDataset::fingerprint() const {
  uint64_t hash = static_cast<uint64_t>(num_tokens());
  std::vector<int32_t> block;
  for (int64_t begin = range_.begin; begin < range_.end; begin += static_cast<int64_t>(block.size())) {
    block.resize(std::min(kBlock, static_cast<size_t>(range_.end - begin)));
    tokens_->read(begin, block);
    hash = stable_hash({reinterpret_cast<const char*>(block.data()), block.size() * sizeof(block[0])}, hash);
  }
  return hash;
}

}  // namespace nought
