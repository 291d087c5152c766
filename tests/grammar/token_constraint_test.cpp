#include "nought/grammar/token_constraint.h"

#include <array>
#include <cmath>

#include "grammar/gbnf_samples.h"
#include "grammar/json_samples.h"
#include <gtest/gtest.h>

#include "nought/base/error.h"
#include "nought/grammar/token_bytes.h"

namespace nought::token_constraint_test {
namespace {

/// Tokens of given bytes. Those without are markers.
class Pieces final : public Tokenizer {
 public:
  explicit Pieces(std::vector<std::string> texts) : texts_(std::move(texts)) {}
  std::string_view name() const override { return "pieces"; }
  int64_t vocab_size() const override { return std::ssize(texts_); }
  std::string decode(std::span<const int32_t> ids) const override {
    std::string text;
    for (const int32_t id : ids) text += texts_[static_cast<size_t>(id)];
    return text;
  }
  int32_t separator() const override { return 0; }
  std::optional<int32_t> find(std::string_view token) const override {
    return token == "<mark>" ? std::optional(0) : std::nullopt;
  }
  int64_t text_bytes(int32_t id) const override { return std::ssize(texts_[static_cast<size_t>(id)]); }
  uint64_t fingerprint() const override { return 0; }

 private:
  void append(std::string_view text, EncodeOptions, std::vector<int32_t>& ids) const override {
    ids.insert(ids.end(), text.size(), 1);
  }
  std::vector<std::string> texts_;
};

/// A marker, all bytes, and pieces of JSON.
Pieces random_pieces(test::Random& random) {
  std::vector<std::string> texts{""};
  for (int byte = 0; byte < 256; ++byte) texts.emplace_back(1, static_cast<char>(byte));
  for (int i = 0; i < 300; ++i) {
    std::string piece;
    for (int k = 0; k < 2 + i % 5; ++k) piece += "{}[]\":, \nab1-\xC3\xBC\\(+*)"[test::below(random, 20)];
    texts.push_back(piece);
  }
  return Pieces(texts);
}

TEST(TokenConstraint, masks_are_what_trying_each_token_gives) {
  test::Random random(2);
  const Pieces pieces = random_pieces(random);
  const auto tokens = std::make_shared<const TokenBytes>(pieces);
  const std::array<std::string_view, 3> written{test::kArithmetic, test::kJson, test::kLists};
  for (size_t i = 0; i < 13; ++i) {
    const OrderedJson schema = i == written.size() ? OrderedJson::object() : test::random_root(random);
    const auto make = [&] {
      if (i < written.size()) return test::grammar_of_gbnf(written[i]);
      Grammar grammar;
      const Grammar::Rule start = grammar.declare();
      grammar.define(start, json_schema_expression(grammar, schema));
      grammar.finish(start);
      return grammar;
    };
    TokenMasks masks(make(), tokens);
    GrammarStates alone(make());
    const std::string word = test::random_word(alone, random, 30);
    for (size_t length = 0; length <= word.size(); ++length) {
      const std::string_view begin = std::string_view(word).substr(0, length);
      const std::vector<uint64_t>& mask = masks.of(masks.states().next(masks.states().start(), begin));
      const GrammarStates::State at = alone.next(alone.start(), begin);
      for (int32_t id = 0; id < pieces.vocab_size(); ++id) {
        const std::string_view text = tokens->of(id);
        const bool fits = !text.empty() && alone.next(at, text) != GrammarStates::kDead;
        ASSERT_EQ((mask[static_cast<size_t>(id) / 64] >> (id % 64) & 1) != 0, fits) << begin << " and " << text;
      }
    }
  }
}

TEST(TokenConstraint, an_answer_may_end_where_its_grammar_does) {
  const Pieces pieces({"", "a", "b", "ab", "c"});
  Grammar grammar;
  const Grammar::Rule start = grammar.declare();
  grammar.define(start, grammar.sequence({grammar.text("ab"), grammar.optional(grammar.text("c"))}));
  grammar.finish(start);
  TokenConstraint constraint(
      std::make_shared<TokenMasks>(std::move(grammar), std::make_shared<const TokenBytes>(pieces)));
  const auto allowed = [&] {
    std::vector<float> logits(6, 1);  // one more than there are tokens
    constraint.apply(logits, std::vector<int32_t>{0});
    std::string ids;
    for (size_t i = 0; i < logits.size(); ++i)
      if (std::isfinite(logits[i])) ids += static_cast<char>('0' + i);
    return ids;
  };
  EXPECT_EQ(allowed(), "13");
  constraint.take(3);
  EXPECT_EQ(allowed(), "04");
  EXPECT_FALSE(constraint.complete());
  EXPECT_THROW(TokenConstraint(constraint).take(1), Error);
  constraint.take(4);
  EXPECT_TRUE(constraint.complete());
  EXPECT_EQ(allowed(), "0");
}

TEST(TokenBytes, markers_count_as_text_if_they_are_named) {
  const Pieces pieces({"", "a", "ab"});
  EXPECT_EQ(TokenBytes(pieces).of(0), "");
  EXPECT_EQ(TokenBytes(pieces, std::vector<std::string>{"<mark>", "<other>"}).of(0), "<mark>");
  EXPECT_EQ(TokenBytes(pieces).sorted()[1].common, 1U);
}

}  // namespace
}  // namespace nought::token_constraint_test
