#include <algorithm>

#include "nought/base/error.h"
#include "nought/text/piece_model.h"
#include "nought/text/unicode.h"

namespace nought {

namespace {

size_t count_of_characters(std::string_view text) {
  return static_cast<size_t>(
      std::ranges::count_if(text, [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; }));
}

class WordPiece final : public PieceModel {
 public:
  WordPiece(const Vocabulary& vocabulary, const WordPieceOptions& options)
      : vocabulary_(vocabulary), options_(options) {
    for (int32_t id = 0; id < vocabulary.size(); ++id)
      if (const std::string* token = vocabulary.token(id)) longest_ = std::max(longest_, token->size());
  }

  void encode(std::span<const std::string_view> pieces, std::vector<int32_t>& ids) const override {
    std::string candidate;
    for (const std::string_view piece : pieces) {
      const size_t before = ids.size();
      if (count_of_characters(piece) <= options_.longest_word && append_parts(piece, candidate, ids)) continue;
      ids.resize(before);
      ids.push_back(options_.unknown);
    }
  }
  void encode_bytes(std::string_view, std::vector<int32_t>& ids) const override { ids.push_back(options_.unknown); }

 private:
  /// The longest token that the rest of the word begins with, again and again; false if there is none.
  bool append_parts(std::string_view word, std::string& candidate, std::vector<int32_t>& ids) const {
    for (size_t at = 0; at < word.size();) {
      candidate.clear();
      if (at > 0) candidate = options_.continuing;
      const size_t mark = candidate.size();
      candidate += word.substr(at, longest_);
      std::optional<int32_t> id;
      while (candidate.size() > mark && !(id = vocabulary_.find(candidate))) candidate.pop_back();
      if (!id) return false;
      ids.push_back(*id);
      at += candidate.size() - mark;
    }
    return true;
  }

  const Vocabulary& vocabulary_;
  WordPieceOptions options_;
  size_t longest_ = 0;  // bytes of a token
};

}  // namespace

std::unique_ptr<PieceModel> make_wordpiece(const Vocabulary& vocabulary, const WordPieceOptions& options) {
  return std::make_unique<WordPiece>(vocabulary, options);
}

}  // namespace nought
