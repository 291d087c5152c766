// Grammars in GBNF whose words nest to any depth.
#pragma once

#include <string_view>

#include "nought/grammar/gbnf_grammar.h"

namespace nought::test {

inline constexpr std::string_view kArithmetic = R"gbnf(
root ::= expr   # sums of products
expr ::= term (ws [-+] ws term)*
term ::= factor (ws ("*" | "/") ws factor)*
factor ::= number | "(" ws expr ws ")" | "-" factor
number ::= "0" | [1-9] [0-9]{0,2} ("." [0-9]+)?
ws ::= " "?
)gbnf";
inline constexpr std::string_view kJson = R"gbnf(
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::= "{" ws (
    string ":" ws value
    ("," ws string ":" ws value)*
  )? "}" ws
array  ::= "[" ws ( value ("," ws value)* )? "]" ws
string ::= "\"" (
    [^"\\\x7F\x00-\x1F] |
    "\\" (["\\bfnrt] | "u" [0-9a-cA-C] [0-9a-fA-F]{3}) # no surrogates
  )* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9])? ws
ws ::= | " " | "\n" [ \t]{0,4}
)gbnf";
inline constexpr std::string_view kLists = R"gbnf(
root ::= "[" items? "]"
items ::= item |
          item "," items
item ::= [a-zäöü]+ | root
)gbnf";

inline Grammar grammar_of_gbnf(std::string_view text) {
  Grammar grammar;
  const Grammar::Rule start = grammar.declare();
  grammar.define(start, gbnf_expression(grammar, text));
  grammar.finish(start);
  return grammar;
}

}  // namespace nought::test
