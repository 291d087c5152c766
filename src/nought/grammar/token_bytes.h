// TokenBytes: the text of each token of a vocabulary, in an order in which common beginnings are read once.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "nought/text/tokenizer.h"

namespace nought {

class TokenBytes {
 public:
  /// markers: spellings of special tokens that count as text; other special tokens have none.
  explicit TokenBytes(const Tokenizer& tokenizer, std::span<const std::string> markers = {});

  /// "" for tokens without text.
  std::string_view of(int32_t id) const { return texts_[static_cast<size_t>(id)]; }
  int64_t size() const { return static_cast<int64_t>(texts_.size()); }
  struct Entry {
    int32_t id;
    uint32_t common;  // how many bytes of it the entry before has, too
    uint32_t length;
  };
  /// The tokens with text, by their bytes.
  std::span<const Entry> sorted() const { return sorted_; }
  /// What each of them has behind `common`, one behind the other.
  std::string_view rests() const { return rests_; }
  size_t longest() const { return longest_; }

 private:
  std::vector<std::string> texts_;
  std::vector<Entry> sorted_;
  std::string rests_;
  size_t longest_ = 0;
};

}  // namespace nought
