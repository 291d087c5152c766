// GBNF, llama.cpp's form of grammars, as expressions of a grammar.
//
// Rules `name ::= alternatives`, one a line: literals, classes of characters with ranges, negation and escapes, `.` for
// any character, names of rules, groups, and the counts * + ? {m} {m,} {m,n}. A rule goes on behind ::= and | and
// within a group; a line that begins with | goes on, too, as xgrammar reads it. Rules may call themselves (not before
// they take text). Not supported: tokens (<...>).
#pragma once

#include <string_view>

#include "nought/grammar/grammar.h"

namespace nought {

/// The words of the rule "root". ConfigError says what is malformed or not supported, in which rule, line and column
/// (characters from 1).
Grammar::Expression gbnf_expression(Grammar& grammar, std::string_view text);

}  // namespace nought
