// TokenStore: a row of tokens. It knows where documents begin, and which tokens are targets of training.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <variant>
#include <vector>

#include "nought/base/math.h"

namespace nought {

class TokenStore {
 public:
  virtual ~TokenStore() = default;

  /// The number of tokens.
  virtual int64_t size() const = 0;
  /// Copies tokens [begin, begin + out.size()).
  virtual void read(int64_t begin, std::span<int32_t> out) const = 0;
  /// True if some tokens are never targets.
  virtual bool has_mask() const { return false; }
  /// Sets out[i] to 1 if token begin + i is a target, else to 0.
  virtual void read_mask(int64_t begin, std::span<uint8_t> out) const;
  /// Appends the positions within `range` at which a document begins, in order.
  virtual void document_starts(Interval range, std::vector<int64_t>& starts) const = 0;
  /// A number that differs if any token of the range differs. A resumed run checks by it that it reads the same data.
  virtual uint64_t fingerprint(Interval range) const;

 protected:
  /// Error unless [begin, begin + count) lies within the store.
  void check_range(int64_t begin, size_t count) const;
};

/// Tokens in memory, in the narrowest type that holds the vocabulary.
class TokenArray final : public TokenStore {
 public:
  explicit TokenArray(int64_t vocab_size);
  /// Makes the next token begin a document.
  void begin_document() { starts_.push_back(size()); }
  /// targets: as EncodedPortion has them; empty if all tokens are targets.
  void append(std::span<const int32_t> tokens, std::span<const uint8_t> targets = {});
  int64_t bytes() const;

  int64_t size() const override;
  void read(int64_t begin, std::span<int32_t> out) const override;
  bool has_mask() const override { return !mask_.empty(); }
  void read_mask(int64_t begin, std::span<uint8_t> out) const override;
  void document_starts(Interval range, std::vector<int64_t>& starts) const override;

 private:
  std::variant<std::vector<uint8_t>, std::vector<uint16_t>, std::vector<int32_t>> values_;
  std::vector<uint8_t> mask_;  // 1 for each token that is a target, else 0; empty while all are targets
  std::vector<int64_t> starts_;
};

/// Several stores as one.
class JoinedTokens final : public TokenStore {
 public:
  explicit JoinedTokens(std::vector<std::shared_ptr<const TokenStore>> parts);

  int64_t size() const override { return ends_.empty() ? 0 : ends_.back(); }
  void read(int64_t begin, std::span<int32_t> out) const override;
  bool has_mask() const override;
  void read_mask(int64_t begin, std::span<uint8_t> out) const override;
  void document_starts(Interval range, std::vector<int64_t>& starts) const override;
  uint64_t fingerprint(Interval range) const override;

 private:
  /// Calls f(part, interval within the part) for every part that `range` meets.
  template <class F>
  void for_each_part(Interval range, F&& f) const;

  std::vector<std::shared_ptr<const TokenStore>> parts_;
  std::vector<int64_t> ends_;
};

}  // namespace nought
