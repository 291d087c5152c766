#include "nought/grammar/gbnf_grammar.h"

#include <functional>

#include "grammar/gbnf_samples.h"
#include "grammar/json_samples.h"
#include "support/message_of.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/base/error.h"

namespace nought::gbnf_grammar_test {
namespace {

using test::message_of;
using testing::HasSubstr;

bool takes(GrammarStates& states, std::string_view text) {
  const GrammarStates::State at = states.next(states.start(), text);
  return at != GrammarStates::kDead && states.ends(at);
}

/// Reads sums of products by hand: the other way round from an automaton.
class Arithmetic {
 public:
  explicit Arithmetic(std::string_view text) : text_(text) {}
  bool whole() { return sum() && at_ == text_.size(); }

 private:
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool skip(char each) { return peek() == each && ++at_; }
  bool digit() { return peek() >= '0' && peek() <= '9' && ++at_; }
  /// Parts with operators between them. A space without an operator belongs to what follows.
  bool parts(std::string_view operators, const std::function<bool()>& part) {
    if (!part()) return false;
    for (;;) {
      const size_t before = at_;
      skip(' ');
      if (peek() == '\0' || operators.find(peek()) == std::string_view::npos) return at_ = before, true;
      ++at_;
      skip(' ');
      if (!part()) return false;
    }
  }
  bool sum() {
    return parts("+-", [this] { return parts("*/", [this] { return factor(); }); });
  }
  bool factor() {
    if (skip('-')) return factor();
    if (!skip('(')) return number();
    skip(' ');
    if (!sum()) return false;
    skip(' ');
    return skip(')');
  }
  bool number() {
    if (skip('0')) return true;
    if (!digit()) return false;
    for (int i = 0; i < 2 && digit();) ++i;
    if (!skip('.')) return true;
    if (!digit()) return false;
    while (digit()) {
    }
    return true;
  }
  std::string_view text_;
  size_t at_ = 0;
};

TEST(Gbnf, arithmetic_is_what_a_parser_reads) {
  GrammarStates states(test::grammar_of_gbnf(test::kArithmetic));
  test::Random random(5);
  int long_ones = 0;
  for (int i = 0; i < 60; ++i) {
    const std::string word = test::random_word(states, random, 20);
    long_ones += word.size() > 20;
    EXPECT_TRUE(word.empty() || Arithmetic(word).whole()) << word;
  }
  EXPECT_GT(long_ones, 5);
  int both = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string text;
    for (int k = 0; k < 1 + i % 7; ++k) text += "(1)-+*0. 2"[test::below(random, 10)];
    const bool reads = Arithmetic(text).whole();
    both += reads;
    EXPECT_EQ(takes(states, text), reads) << text;
  }
  EXPECT_GT(both, 100);
  EXPECT_TRUE(takes(states, std::string(500, '(') + "1" + std::string(500, ')')));
}

TEST(Gbnf, json_and_lists_parse_and_nest) {
  for (const std::string_view text : {test::kJson, test::kLists}) {
    GrammarStates states(test::grammar_of_gbnf(text));
    test::Random random(9);
    for (int i = 0; i < 60; ++i) {
      std::string word = test::random_word(states, random, 60);
      if (text == test::kLists)  // names without quotes
        for (size_t at = 0; at < word.size(); ++at)
          if (std::string_view("[],").find(word[at]) == std::string_view::npos) {
            const size_t end = std::min(word.find_first_of("[],", at), word.size());
            word.insert(end, "\"");
            word.insert(at, "\"");
            at = end + 1;
          }
      EXPECT_TRUE(word.empty() || !OrderedJson::parse(word, nullptr, false).is_discarded()) << word;
    }
  }
  GrammarStates json(test::grammar_of_gbnf(test::kJson));
  EXPECT_TRUE(takes(json, R"({"a": [1, -2.5e+3, {"ü\n": null}], "b":{}})"));
  EXPECT_FALSE(takes(json, R"({"a": [1, }]})"));
  GrammarStates lists(test::grammar_of_gbnf(test::kLists));
  EXPECT_TRUE(takes(lists, std::string(300, '[') + "ä" + std::string(300, ']')));
  // Alternatives that begin alike do not double with each level.
  GrammarStates sums(
      test::grammar_of_gbnf("root ::= sum\nsum ::= term \"+\" sum | term\nterm ::= part \"*\" term | part\npart ::= "
                            "\"(\" sum \")\" | [0-9]"));
  EXPECT_TRUE(takes(sums, std::string(300, '(') + "1+2*3" + std::string(300, ')') + "*4"));
  EXPECT_LT(sums.size(), 2000);
  // A rule that ends with itself needs no stack: the same places come again.
  EXPECT_EQ(lists.next(lists.start(), "[a,"), lists.next(lists.start(), "[a,b,c,d,"));
}

TEST(Gbnf, words_are_those_of_the_grammar) {
  struct Case {
    const char *grammar, *texts, *others;  // two lists in JSON
  };
  for (const Case& each :
       std::vector<Case>{{"root ::= \"a\\t\\\"\\x41\\u00e9\\U0001F600\"", R"(["a\t\"Aé😀"])", R"(["a"])"},
                         {"root::=[a-c\\]\\x2D_-]+", R"(["abc]-_"])", R"(["","d","\\"])"},
                         {"root ::= [^\\n\"ä]", R"(["a","€","\r"])", R"(["\n","\"","ä","ab",""])"},
                         {"root ::= . .", R"(["a\n","😀é"])", R"(["a","abc"])"},
                         {"root ::= \"ab\"{2} | \"c\"{1,} | \"d\"{0,2} | \"e\"{ 1 , 2 }x\nx ::= \"!\"?",
                          R"(["abab","ccc","","dd","e","ee!"])", R"(["ab","ababab","ddd","eee","!"])"},
                         {"# first\nroot ::= a # behind\n  # between\n  | # more\n  b-2\na ::=\n\t\"x\"\r\nb-2 ::= "
                          "(\"y\"\n  \"z\"#)\n)+ _n\n_n ::= "
                          "| \"#\"",
                          R"(["x","yz","yzyz#"])", R"(["","y","x#"])"},
                         {"root ::= (((\"a\"*)*)+ | ())?", R"(["","aaa"])", R"(["b"])"},
                         {"root ::= left root right | \"\"\nleft ::= \"(\"\nright ::= \")\"", R"-(["","()","((()))"])-",
                          R"-(["(",")(","()()"])-"},
                         {"root ::= \"a\" | dead\ndead ::= \"b\" dead", R"(["a"])", R"(["b","ba"])"}}) {
    GrammarStates states(test::grammar_of_gbnf(each.grammar));
    for (const OrderedJson& text : OrderedJson::parse(each.texts))
      EXPECT_TRUE(takes(states, text.get<std::string>())) << text << " of " << each.grammar;
    for (const OrderedJson& text : OrderedJson::parse(each.others))
      EXPECT_FALSE(takes(states, text.get<std::string>())) << text << " of " << each.grammar;
  }
}

TEST(Gbnf, what_is_wrong_is_named_with_its_place) {
  for (const auto& [grammar, message] : std::vector<std::pair<std::string, std::string>>{
           {"start ::= \"a\"", "the grammar has no rule \"root\""},
           {"", "the grammar has no rule \"root\""},
           {"\xFF", "no UTF-8"},
           {"root ::= \"a\"\n\n  é ::= x", "line 3, column 3: expected the name of a rule, found 'é'"},
           {"= \"a\"", "line 1, column 1: expected the name of a rule, found '='"},
           {"root := \"a\"", "rule \"root\", line 1, column 6: expected ::=, found ':'"},
           {"root ::= \"é\" [a] )", "rule \"root\", line 1, column 18: expected the end of the rule, found ')'"},
           {"root ::= a\na ::= (\"x\"\n",
            "rule \"a\", line 3, column 1: expected ) for the ( at rule \"a\", line 2, column 7"},
           {"root ::= a\n\na ::= \"x\" b-c", "rule \"a\", line 3, column 11: the rule \"b-c\" is not defined"},
           {"root ::= \"a\"\nroot ::= \"b\"", "rule \"root\", line 2, column 1: the rule is defined twice"},
           {"root ::= \"a", "rule \"root\", line 1, column 10: no \" ends"},
           {"root ::= [a", "rule \"root\", line 1, column 10: no ] ends"},
           {"root ::= [a-", "column 10: no ] ends"},
           {"root ::= []", "column 10: the class is empty"},
           {"root ::= [z-a]", "column 11: the range ends before it begins"},
           {"root ::= \"\\q\"", "column 11: an escape that is not known"},
           {"root ::= \"\\", "column 11: an escape that is not known"},
           {"root ::= \"\\u12g4\"", "column 11: expected 4 hexadecimal digits"},
           {"root ::= \"\\U00110000\"", "column 11: no character has this number"},
           {"root ::= \"\\uD800\"", "column 11: no character has this number"},
           {"root ::= * \"a\"", "column 10: a count of nothing"},
           {"root ::= \"a\"{}", "column 14: expected a count"},
           {"root ::= \"a\"{3,1}", "column 13: the count ends before it begins"},
           {"root ::= \"a\"{99999}", "column 14: expected a count from 0 to 10000"},
           {"root ::= \"a\"{1,2", "column 17: expected }, found the end"},
           {"root ::= <think> \"a\"", "column 10: tokens are not supported"},
           {"root ::= " + std::string(200, '(') + std::string(200, ')'), "too many groups"},
           {"root ::= expr\nexpr ::= expr \"+\" expr | \"1\"",
            "rule \"expr\", line 2, column 1: it is itself before it takes any text (left recursion)"},
           {"root ::= a\na ::= b? c\nb ::= \"b\"*\nc ::= \"c\"{0} a | \"d\"",
            "rule \"a\", line 2, column 1: it is itself"},
           {"root ::= \"a\" root", "rule \"root\", line 1, column 1: nothing finite satisfies it"},
           {"root ::= (\"a\"{10000}){10000}", "more than 262144 nodes"},
           {"root ::= \"a\"" + std::string(100000, '*'), "parts within each other"}})
    EXPECT_THAT(message_of<ConfigError>([&, text = grammar] { test::grammar_of_gbnf(text); }), HasSubstr(message))
        << grammar.substr(0, 200);
  // A chain of rules is followed without nesting calls, and in a time in proportion to it.
  std::string chain = "root ::= r0\n";
  for (int i = 0; i < 20000; ++i) chain += fmt::format("r{} ::= r{}\n", i, i + 1);
  GrammarStates states(test::grammar_of_gbnf(chain + "r20000 ::= \"x\""));
  EXPECT_TRUE(takes(states, "x"));
}

}  // namespace
}  // namespace nought::gbnf_grammar_test
