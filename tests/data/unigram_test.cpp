// The likeliest segmentation against trying all of them.
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/base/error.h"
#include "nought/tensor/random.h"
#include "nought/text/piece_model.h"

namespace nought::unigram_test {
namespace {

using testing::ElementsAre;

using Ids = std::vector<int32_t>;

const std::vector<std::pair<std::string, double>> kTokens{{"<unk>", 0},  {"a", -2},    {"b", -2.5},   {"c", -3},
                                                          {"ab", -3.75}, {"bc", -4.1}, {"abc", -7},   {"ca", -4.6},
                                                          {"aa", -3.9},  {"bab", -6},  {"caab", -8.2}};

Vocabulary vocabulary_of() {
  Vocabulary vocabulary;
  for (const auto& [token, score] : kTokens) vocabulary.add(token, vocabulary.size());
  return vocabulary;
}

std::vector<double> scores_of() {
  std::vector<double> scores;
  for (const auto& [token, score] : kTokens) scores.push_back(score);
  return scores;
}

Ids encoded(const PieceModel& model, std::string_view piece) {
  Ids ids;
  model.encode(std::span(&piece, 1), ids);
  return ids;
}

/// The largest sum of scores over all segmentations of text[from, ...).
double best_score(const std::string& text, size_t from) {
  if (from == text.size()) return 0;
  double best = -std::numeric_limits<double>::infinity();
  for (size_t id = 1; id < kTokens.size(); ++id)
    if (text.compare(from, kTokens[id].first.size(), kTokens[id].first) == 0)
      best = std::max(best, kTokens[id].second + best_score(text, from + kTokens[id].first.size()));
  return best;
}

TEST(Unigram, the_segmentation_has_the_largest_sum_of_scores) {
  const Vocabulary vocabulary = vocabulary_of();
  const auto model = make_unigram(vocabulary, scores_of(), {.unknown = 0});
  for (uint64_t key = 0; key < 100; ++key) {
    std::string text, spelt;
    for (size_t i = 0; i < 1 + key % 14; ++i) text += static_cast<char>('a' + philox(key, i)[0] % 3);
    double score = 0;
    for (const int32_t id : encoded(*model, text)) {
      score += kTokens[static_cast<size_t>(id)].second;
      spelt += kTokens[static_cast<size_t>(id)].first;
    }
    EXPECT_EQ(spelt, text);
    EXPECT_NEAR(score, best_score(text, 0), 1e-12) << text;
  }
}

TEST(Unigram, unknown_characters_are_one_token_or_bytes) {
  Vocabulary vocabulary = vocabulary_of();
  EXPECT_THAT(encoded(*make_unigram(vocabulary, scores_of(), {.unknown = 0}), "a\u4e2d\u6587b"), ElementsAre(1, 0, 2));
  const auto first = static_cast<int32_t>(vocabulary.size());
  for (int byte = 0; byte < 256; ++byte) vocabulary.add(byte_token(static_cast<uint8_t>(byte)), first + byte);
  std::vector<double> scores = scores_of();
  scores.resize(scores.size() + 256, 0);
  const auto bytes = make_unigram(vocabulary, scores, {.byte_fallback = true, .unknown = 0});
  EXPECT_THAT(encoded(*bytes, "a\u00e9b"), ElementsAre(1, first + 0xc3, first + 0xa9, 2));
}

TEST(Unigram, needs_tokens_of_a_sane_length) {
  Vocabulary vocabulary;
  EXPECT_THROW(make_unigram(vocabulary, {}, {}), ConfigError);
  vocabulary.add(std::string(5000, 'x'), 0);
  EXPECT_THROW(make_unigram(vocabulary, {0.0}, {}), ConfigError);
}

}  // namespace
}  // namespace nought::unigram_test
