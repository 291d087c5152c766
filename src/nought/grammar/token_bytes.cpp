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
    if (!of(id).empty()) sorted_.push_back({id, 0});
  std::sort(sorted_.begin(), sorted_.end(), [&](const Entry& a, const Entry& b) { return of(a.id) < of(b.id); });
  for (size_t i = 1; i < sorted_.size(); ++i) {
    const std::string_view a = of(sorted_[i - 1].id), b = of(sorted_[i].id);
    sorted_[i].common = static_cast<int32_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
  }
}

}  // namespace nought
