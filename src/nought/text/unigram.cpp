#include <algorithm>
#include <limits>

#include "nought/base/error.h"
#include "nought/text/piece_model.h"
#include "nought/text/unicode.h"

namespace nought {

namespace {

constexpr size_t kMaxToken = 4096;      // the trie is built by recursion over the bytes of a token
constexpr double kUnknownPenalty = 10;  // below the worst token, as in SentencePiece

// The tokens that begin a text, by length: nodes of 256-way branching would waste memory, so children are sorted runs.
class Trie {
 public:
  explicit Trie(const Vocabulary& vocabulary) {
    std::vector<std::pair<std::string_view, int32_t>> tokens;
    for (int32_t id = 0; id < vocabulary.size(); ++id) {
      const std::string* token = vocabulary.token(id);
      if (!token || token->empty()) continue;
      require<ConfigError>(token->size() <= kMaxToken, "the token {} has {} bytes, at most {} are taken", id,
                           token->size(), kMaxToken);
      tokens.emplace_back(*token, id);
    }
    std::sort(tokens.begin(), tokens.end());
    nodes_.emplace_back();
    build(0, tokens, 0);
  }

  /// Calls f(length, id) for every token that `text` starts with.
  template <class F>
  void for_each_prefix(std::string_view text, F&& f) const {
    const Node* node = nodes_.data();
    for (size_t length = 1; length <= text.size(); ++length) {
      const auto byte = static_cast<uint8_t>(text[length - 1]);
      const auto first = nodes_.begin() + node->first_child, last = first + node->children;
      const auto child = std::lower_bound(first, last, byte, [](const Node& n, uint8_t b) { return n.byte < b; });
      if (child == last || child->byte != byte) return;
      node = &*child;
      if (node->id >= 0) f(length, node->id);
    }
  }

 private:
  struct Node {
    uint8_t byte = 0;
    uint16_t children = 0;
    int32_t first_child = 0;
    int32_t id = -1;
  };
  using Tokens = std::span<const std::pair<std::string_view, int32_t>>;

  // tokens: those below the node, sorted, equal in their first `depth` bytes.
  void build(size_t node, Tokens tokens, size_t depth) {
    while (!tokens.empty() && tokens.front().first.size() == depth) {
      if (nodes_[node].id < 0) nodes_[node].id = tokens.front().second;
      tokens = tokens.subspan(1);
    }
    std::vector<Tokens> groups;
    for (size_t begin = 0, end; begin < tokens.size(); begin = end) {
      const char byte = tokens[begin].first[depth];
      for (end = begin; end < tokens.size() && tokens[end].first[depth] == byte;) ++end;
      groups.push_back(tokens.subspan(begin, end - begin));
    }
    const size_t first = nodes_.size();
    nodes_[node].first_child = static_cast<int32_t>(first);
    nodes_[node].children = static_cast<uint16_t>(groups.size());
    for (const Tokens& group : groups) nodes_.emplace_back().byte = static_cast<uint8_t>(group.front().first[depth]);
    for (size_t i = 0; i < groups.size(); ++i) build(first + i, groups[i], depth + 1);
  }

  std::vector<Node> nodes_;
};

class Unigram final : public PieceModel {
 public:
  Unigram(const Vocabulary& vocabulary, std::vector<double> scores, const UnigramOptions& options)
      : scores_(std::move(scores)),
        trie_(vocabulary),
        fallback_(vocabulary, false, options.byte_fallback, options.unknown) {
    require<ConfigError>(!scores_.empty(), "a Unigram tokenizer without tokens");
    unknown_score_ = *std::min_element(scores_.begin(), scores_.end()) - kUnknownPenalty;
  }

  void encode(std::span<const std::string_view> pieces, std::vector<int32_t>& ids) const override {
    std::vector<Step> best;
    for (const std::string_view piece : pieces) encode_piece(piece, best, ids);
  }
  void encode_bytes(std::string_view bytes, std::vector<int32_t>& ids) const override {
    fallback_.encode(bytes, true, ids);
  }

 private:
  static constexpr int32_t kUnknown = -1;
  struct Step {  // the best way to reach a position
    double score;
    size_t from;
    int32_t id;
  };

  // Viterbi: the segmentation with the largest sum of scores, the first found of equals.
  void encode_piece(std::string_view piece, std::vector<Step>& best, std::vector<int32_t>& ids) const {
    constexpr double kUnreached = -std::numeric_limits<double>::infinity();
    best.assign(piece.size() + 1, {kUnreached, 0, kUnknown});
    best[0].score = 0;
    for (size_t begin = 0; begin < piece.size(); begin += utf8_length(piece[begin])) {
      const double before = best[begin].score;
      const auto offer = [&](size_t length, int32_t id, double score) {
        Step& step = best[begin + length];
        if (step.score == kUnreached || before + score > step.score) step = {before + score, begin, id};
      };
      const size_t character = utf8_length(piece[begin]);
      bool character_is_token = false;
      trie_.for_each_prefix(piece.substr(begin), [&](size_t length, int32_t id) {
        offer(length, id, scores_[static_cast<size_t>(id)]);
        character_is_token |= length == character;
      });
      if (!character_is_token) offer(character, kUnknown, unknown_score_);
    }
    std::vector<Interval> path;  // from the end
    for (size_t end = piece.size(); end > 0; end = best[end].from) {
      const bool joins = best[end].id == kUnknown && !path.empty() && path.back().id == kUnknown;
      joins ? void(path.back().begin = best[end].from) : path.push_back({best[end].from, end, best[end].id});
    }
    for (auto part = path.rbegin(); part != path.rend(); ++part) {
      if (part->id == kUnknown) {
        fallback_.encode(piece.substr(part->begin, part->end - part->begin), true, ids);
      } else {
        ids.push_back(part->id);
      }
    }
  }

  struct Interval {
    size_t begin, end;
    int32_t id;
  };

  std::vector<double> scores_;
  Trie trie_;
  Fallback fallback_;
  double unknown_score_ = 0;
};

}  // namespace

std::unique_ptr<PieceModel> make_unigram(const Vocabulary& vocabulary, std::vector<double> scores,
                                         const UnigramOptions& options) {
  return std::make_unique<Unigram>(vocabulary, std::move(scores), options);
}

}  // namespace nought
