#include "nought/data/token_store.h"

#include <algorithm>

#include "nought/base/error.h"
#include "nought/tensor/random.h"

namespace nought {

namespace {

constexpr int64_t kBlock = int64_t{1} << 20;  // tokens hashed at a time

}  // namespace

void TokenStore::check_range(int64_t begin, size_t count) const {
  const int64_t end = begin + static_cast<int64_t>(count);
  require<Error>(0 <= begin && end <= size(), "tokens [{}, {}) leave {}", begin, end, size());
}

void TokenStore::read_mask(int64_t begin, std::span<uint8_t> out) const {
  check_range(begin, out.size());
  std::fill(out.begin(), out.end(), uint8_t{1});
}

uint64_t TokenStore::fingerprint(Interval range) const {
  uint64_t hash = static_cast<uint64_t>(range.size());
  std::vector<int32_t> block;
  for (int64_t begin = range.begin; begin < range.end; begin += kBlock) {
    block.resize(static_cast<size_t>(std::min(kBlock, range.end - begin)));
    read(begin, block);
    hash = stable_hash({reinterpret_cast<const char*>(block.data()), block.size() * sizeof(block[0])}, hash);
  }
  return hash;
}

TokenArray::TokenArray(int64_t vocab_size) {
  if (vocab_size <= 256) {
    values_ = std::vector<uint8_t>();
  } else if (vocab_size <= 65536) {
    values_ = std::vector<uint16_t>();
  } else {
    values_ = std::vector<int32_t>();
  }
}

void TokenArray::append(std::span<const int32_t> tokens, std::span<const uint8_t> targets) {
  require<Error>(targets.empty() || targets.size() == tokens.size(), "{} tokens, but {} say whether they are targets",
                 tokens.size(), targets.size());
  if (!targets.empty() || !mask_.empty()) {
    mask_.resize(static_cast<size_t>(size()), 1);  // what came before are targets
    mask_.insert(mask_.end(), targets.begin(), targets.end());
    mask_.resize(static_cast<size_t>(size()) + tokens.size(), 1);
  }
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
  const auto of_mask = static_cast<int64_t>(mask_.size());
  return of_mask +
         std::visit([](const auto& values) { return static_cast<int64_t>(values.size() * sizeof(values[0])); },
                    values_);
}

void TokenArray::read(int64_t begin, std::span<int32_t> out) const {
  check_range(begin, out.size());
  std::visit([&](const auto& values) { std::copy_n(values.begin() + begin, out.size(), out.begin()); }, values_);
}

void TokenArray::read_mask(int64_t begin, std::span<uint8_t> out) const {
  if (mask_.empty()) return TokenStore::read_mask(begin, out);
  check_range(begin, out.size());
  std::copy_n(mask_.begin() + begin, out.size(), out.begin());
}

void TokenArray::document_starts(Interval range, std::vector<int64_t>& starts) const {
  const auto first = std::lower_bound(starts_.begin(), starts_.end(), range.begin);
  starts.insert(starts.end(), first, std::lower_bound(first, starts_.end(), range.end));
}

JoinedTokens::JoinedTokens(std::vector<std::shared_ptr<const TokenStore>> parts) : parts_(std::move(parts)) {
  for (const auto& part : parts_) ends_.push_back(size() + part->size());
}

template <class F>
void JoinedTokens::for_each_part(Interval range, F&& f) const {
  auto part = static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), range.begin) - ends_.begin());
  for (; part < parts_.size(); ++part) {
    const int64_t start = part == 0 ? 0 : ends_[part - 1];
    if (start >= range.end) return;
    const Interval common = intersect(range, {start, ends_[part]});
    if (!common.empty()) f(*parts_[part], Interval{common.begin - start, common.end - start});
  }
}

void JoinedTokens::read(int64_t begin, std::span<int32_t> out) const {
  check_range(begin, out.size());
  for_each_part({begin, begin + static_cast<int64_t>(out.size())}, [&](const TokenStore& part, Interval range) {
    part.read(range.begin, out.first(static_cast<size_t>(range.size())));
    out = out.subspan(static_cast<size_t>(range.size()));
  });
}

bool JoinedTokens::has_mask() const {
  return std::any_of(parts_.begin(), parts_.end(), [](const auto& part) { return part->has_mask(); });
}

void JoinedTokens::read_mask(int64_t begin, std::span<uint8_t> out) const {
  check_range(begin, out.size());
  for_each_part({begin, begin + static_cast<int64_t>(out.size())}, [&](const TokenStore& part, Interval range) {
    part.read_mask(range.begin, out.first(static_cast<size_t>(range.size())));
    out = out.subspan(static_cast<size_t>(range.size()));
  });
}

void JoinedTokens::document_starts(Interval range, std::vector<int64_t>& starts) const {
  int64_t offset = range.begin;
  for_each_part(range, [&](const TokenStore& part, Interval within) {
    const size_t before = starts.size();
    part.document_starts(within, starts);
    for (size_t i = before; i < starts.size(); ++i) starts[i] += offset - within.begin;
    offset += within.size();
  });
}

uint64_t JoinedTokens::fingerprint(Interval range) const {
  uint64_t hash = static_cast<uint64_t>(range.size());
  for_each_part(range, [&](const TokenStore& part, Interval within) {
    const uint64_t print = part.fingerprint(within);
    hash = stable_hash({reinterpret_cast<const char*>(&print), sizeof(print)}, hash);
  });
  return hash;
}

}  // namespace nought
