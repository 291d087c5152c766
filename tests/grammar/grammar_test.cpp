#include "nought/grammar/grammar.h"

#include <regex>

#include "grammar/json_samples.h"
#include "support/message_of.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/base/error.h"
#include "nought/grammar/grammar_states.h"
#include "nought/grammar/regex_grammar.h"
#include "nought/text/unicode.h"

namespace nought::grammar_test {
namespace {

using test::message_of;
using testing::HasSubstr;

template <class Make>
GrammarStates states_of(const Make& make) {
  Grammar grammar;
  const Grammar::Rule start = grammar.declare();
  grammar.define(start, make(grammar));
  grammar.finish(start);
  return GrammarStates(std::move(grammar));
}

bool takes(GrammarStates& states, std::string_view text) {
  const GrammarStates::State at = states.next(states.start(), text);
  return at != GrammarStates::kDead && states.ends(at);
}

TEST(Grammar, characters_are_valid_utf8_alone) {
  GrammarStates states = states_of([](Grammar& g) { return g.characters({{0, 0x10FFFF}}); });
  for (const char32_t each :
       {U'\0', U'\x7F', U'\x80', U'\x7FF', U'\x800', U'\xD7FF', U'\xE000', U'\xFFFF', U'\U00010000', U'\U0010FFFF'}) {
    std::string text;
    append_utf8(text, each);
    EXPECT_TRUE(takes(states, text)) << static_cast<uint32_t>(each);
  }
  test::Random random(3);
  for (int i = 0; i < 20000; ++i) {
    std::string text;
    for (int k = 0; k < 1 + i % 4; ++k)
      text += static_cast<char>(test::below(random, 3) == 0 ? random() : 0x80 + random() % 128);
    const bool one = is_valid_utf8(text) && utf8_length(text[0]) == text.size();
    EXPECT_EQ(takes(states, text), one) << testing::PrintToString(text);
  }
}

TEST(Grammar, rules_nest_to_any_depth_and_equal_ways_on_are_one_state) {
  Grammar grammar;
  const Grammar::Rule pair = grammar.declare();
  grammar.define(pair, grammar.sequence({grammar.text("("), grammar.repeat(grammar.call(pair), 0), grammar.text(")")}));
  grammar.finish(pair);
  GrammarStates states(std::move(grammar));
  EXPECT_TRUE(takes(states, "(()(()))"));
  EXPECT_FALSE(takes(states, "(()"));
  EXPECT_FALSE(takes(states, "())"));
  EXPECT_TRUE(takes(states, std::string(500, '(') + std::string(500, ')')));
  EXPECT_EQ(states.next(states.start(), "("), states.next(states.start(), "(()(())"));
}

TEST(Grammar, markers_are_found_where_they_begin_again) {
  GrammarStates until = states_of([](Grammar& g) { return g.until("aab"); });
  GrammarStates without = states_of([](Grammar& g) { return g.without("aab"); });
  EXPECT_TRUE(takes(until, "xaaab"));
  EXPECT_FALSE(takes(until, "aabb"));
  EXPECT_TRUE(takes(without, "aaxaba\xFF"));
  EXPECT_FALSE(takes(without, "aaab"));
}

TEST(Grammar, a_refused_pattern_is_shown_in_one_line_of_whole_characters) {
  Grammar grammar;
  const std::string pattern = "a\n" + std::string(77, 'b') + "\xC3\xA9)";  // the character has the bytes 79 and 80
  try {
    regex_expression(grammar, pattern, true,
                     [&](const Grammar::CodePoints& ranges) { return grammar.characters(ranges); });
    FAIL() << "it was taken";
  } catch (const ConfigError& error) {
    const std::string message = error.what();
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    EXPECT_TRUE(is_valid_utf8(message)) << message;
    EXPECT_NE(message.find("a ) without its ( at byte 81"), std::string::npos) << message;
  }
}

TEST(Grammar, a_regular_expression_takes_what_std_regex_finds) {
  test::Random random(11);
  for (const char* pattern : {"a", "^a", "a$", "^ab*c?$", "^(a|b){2,3}$", "(?:ab)+", "^[^ab]{1,2}$", "b|^c", "^a.c$",
                              "^a*?b$", "^[a\\-]+$", "\\d", "^\\w+$", "^\\x61\\u0062$"}) {
    const auto write = [](Grammar& g) {
      return [&g](const Grammar::CodePoints& ranges) { return g.characters(ranges); };
    };
    GrammarStates states = states_of([&](Grammar& g) { return regex_expression(g, pattern, false, write(g)); });
    GrammarStates whole = states_of([&](Grammar& g) { return regex_expression(g, pattern, true, write(g)); });
    const std::regex expected(pattern);
    for (int i = 0; i < 300; ++i) {
      std::string text;
      for (int k = 0; k < i % 6; ++k) text += "abc-1 "[test::below(random, 6)];
      EXPECT_EQ(takes(states, text), std::regex_search(text, expected)) << pattern << " in " << text;
      EXPECT_EQ(takes(whole, text), std::regex_match(text, expected)) << pattern << " is " << text;
    }
  }
}

TEST(Grammar, what_has_no_end_is_refused) {
  EXPECT_THAT(message_of<ConfigError>([] { states_of([](Grammar& g) { return g.choice({}); }); }),
              HasSubstr("nothing finite"));
  EXPECT_THAT(message_of<ConfigError>([] {
                states_of([](Grammar& g) {
                  std::vector<Grammar::Expression> all;
                  for (int i = 0; i < 40000; ++i) all.push_back(g.optional(g.text("a")));
                  return g.sequence(all);
                });
              }),
              HasSubstr("more than 8192 places at once"));
  EXPECT_THAT(message_of<ConfigError>([] {
                states_of([](Grammar& g) {
                  const Grammar::Rule rule = g.declare();
                  g.define(rule, g.choice({g.text("a"), g.sequence({g.text(""), g.call(rule), g.text("b")})}));
                  return g.call(rule);
                });
              }),
              HasSubstr("itself before it takes any text"));
  EXPECT_THAT(message_of<ConfigError>([] {
                states_of([](Grammar& g) {
                  Grammar::Expression each = g.text("a");
                  for (int i = 0; i < 100000; ++i) each = g.repeat(each, 0);
                  return each;
                });
              }),
              HasSubstr("more than 1000 parts within each other"));
}

}  // namespace
}  // namespace nought::grammar_test
