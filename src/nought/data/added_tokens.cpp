#include "nought/data/added_tokens.h"

#include <algorithm>

#include "nought/base/error.h"
#include "nought/data/unicode.h"

namespace nought {

void AddedTokens::add(AddedToken token) {
  require<ConfigError>(!token.content.empty(), "the added token of id {} is empty", token.id);
  const auto [entry, inserted] = by_content_.emplace(token.content, tokens_.size());
  if (!inserted) {
    tokens_[entry->second] = std::move(token);
    return;
  }
  std::vector<size_t>& lengths = lengths_by_first_byte_[static_cast<uint8_t>(token.content[0])];
  const auto place = std::lower_bound(lengths.begin(), lengths.end(), token.content.size(), std::greater<>());
  if (place == lengths.end() || *place != token.content.size()) lengths.insert(place, token.content.size());
  tokens_.push_back(std::move(token));
}

std::optional<int32_t> AddedTokens::find(std::string_view content) const {
  const auto found = by_content_.find(std::string(content));
  return found == by_content_.end() ? std::nullopt : std::optional(tokens_[found->second].id);
}

const AddedToken* AddedTokens::longest_at(std::string_view text, bool specials, bool normalized) const {
  for (const size_t length : lengths_by_first_byte_[static_cast<uint8_t>(text[0])]) {
    if (length > text.size()) continue;
    const auto found = by_content_.find(std::string(text.substr(0, length)));
    if (found == by_content_.end()) continue;
    const AddedToken& token = tokens_[found->second];
    if (token.normalized == normalized && (specials || !token.special)) return &token;
  }
  return nullptr;
}

std::optional<MarkerMatch> AddedTokens::first(std::string_view text, size_t from, bool specials,
                                              bool normalized) const {
  if (tokens_.empty()) return std::nullopt;
  for (size_t i = from; i < text.size(); ++i) {
    if (lengths_by_first_byte_[static_cast<uint8_t>(text[i])].empty()) continue;
    if (const AddedToken* token = longest_at(text.substr(i), specials, normalized))
      return MarkerMatch{i, i + token->content.size(), token->id, token->strip_left, token->strip_right};
  }
  return std::nullopt;
}

std::optional<AddedTokens::Match> AddedTokens::next(std::string_view text, size_t from, bool specials,
                                                    bool normalized) const {
  const auto found = first(text, from, specials, normalized);
  if (!found) return std::nullopt;
  auto [begin, end, id, strips_left, strips_right] = *found;
  if (strips_left) begin -= trailing_white_space(text.substr(from, begin - from));
  if (strips_right) end += leading_white_space(text.substr(end));
  return Match{begin, end, id};
}

}  // namespace nought
