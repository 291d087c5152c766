#include "nought/text/added_tokens.h"

#include <algorithm>

#include "nought/base/error.h"
#include "nought/text/unicode.h"

namespace nought {

void AddedTokens::add(AddedToken token) {
  require<ConfigError>(!token.content.empty(), "the added token of id {} is empty", token.id);
  const auto [entry, inserted] = by_content_.emplace(token.content, tokens_.size());
  if (!inserted) {
    tokens_[entry->second] = std::move(token);
    return;
  }
  begins_[static_cast<uint8_t>(token.content[0])] = true;
  tokens_.push_back(std::move(token));
}

std::optional<int32_t> AddedTokens::find(std::string_view content) const {
  const auto found = by_content_.find(content);
  return found == by_content_.end() ? std::nullopt : std::optional(tokens_[found->second].id);
}

const AddedToken* AddedTokens::longest_at(std::string_view text, bool specials, bool normalized) const {
  // The last token in order that is not behind the text begins the text, or else shares with it at least as much as any
  // token that does.
  for (auto behind = by_content_.upper_bound(text); behind != by_content_.begin();
       behind = by_content_.upper_bound(text)) {
    const auto& [content, index] = *std::prev(behind);
    const auto differs = std::mismatch(content.begin(), content.end(), text.begin(), text.end()).first;
    const auto same = static_cast<size_t>(differs - content.begin());
    if (same == 0) break;
    const AddedToken& token = tokens_[index];
    const bool begins_text = same == content.size();
    if (begins_text && token.normalized == normalized && (specials || !token.special)) return &token;
    text = text.substr(0, begins_text ? same - 1 : same);
  }
  return nullptr;
}

namespace {

MarkerMatch match_at(size_t begin, const AddedToken& token) {
  return {begin, begin + token.content.size(), token.id, token.strip_left, token.strip_right};
}

}  // namespace

std::optional<MarkerMatch> AddedTokens::first(std::string_view text, size_t from, bool specials,
                                              bool normalized) const {
  if (tokens_.empty()) return std::nullopt;
  for (size_t i = from; i < text.size(); ++i) {
    if (!begins_[static_cast<uint8_t>(text[i])]) continue;
    if (const AddedToken* token = longest_at(text.substr(i), specials, normalized)) return match_at(i, *token);
  }
  return std::nullopt;
}

std::optional<MarkerMatch> AddedTokens::first_of_any(std::string_view text, size_t from) const {
  if (tokens_.empty()) return std::nullopt;
  for (size_t i = from; i < text.size(); ++i) {
    if (!begins_[static_cast<uint8_t>(text[i])]) continue;
    const std::string_view rest = text.substr(i);
    const AddedToken* original = longest_at(rest, true, false);
    const AddedToken* token = original != nullptr ? original : longest_at(rest, true, true);
    if (token != nullptr) return match_at(i, *token);
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
