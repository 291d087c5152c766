#include "nought/grammar/token_bytes.h"

#include <algorithm>

namespace nought {

TokenBytes::TokenBytes(const Tokenizer& tokenizer, std::span<const std::string> markers)
    : texts_(static_cast<size_t>(tokenizer.vocab_size())) {
  // A token's text is what it adds to the text before it: the first word of a text may lack its space.
  const std::vector<int32_t> before = tokenizer.encode("a");
  const size_t length = tokenizer.decode(before).size();
  std::vector<int32_t> ids = before;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const int64_t bytes = tokenizer.text_bytes(id);
    if (bytes == 0) continue;
    ids.resize(before.size());
    ids.push_back(id);
    const std::string text = tokenizer.decode(ids).substr(length);
    if (static_cast<int64_t>(text.size()) == bytes) texts_[static_cast<size_t>(id)] = text;
  }
  for (const std::string& marker : markers)
    if (const auto id = tokenizer.find(marker); id && *id < tokenizer.vocab_size())
      texts_[static_cast<size_t>(*id)] = marker;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id)
    if (!of(id).empty()) sorted_.push_back({id, 0, static_cast<uint32_t>(of(id).size())});
  std::sort(sorted_.begin(), sorted_.end(), [&](const Entry& a, const Entry& b) { return of(a.id) < of(b.id); });
  std::string_view before_it;
  for (Entry& entry : sorted_) {
    const std::string_view text = of(entry.id);
    const auto differs = std::mismatch(before_it.begin(), before_it.end(), text.begin(), text.end()).second;
    entry.common = static_cast<uint32_t>(differs - text.begin());
    rests_ += text.substr(entry.common);
    longest_ = std::max(longest_, text.size());
    before_it = text;
  }
}

}  // namespace nought
