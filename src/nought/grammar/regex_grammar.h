// Regular expressions as expressions of a grammar.
//
// JavaScript's, as JSON schemas have them: alternatives, groups, classes, \d \w \s and the escapes of characters, and
// counts (greedy or not is one here). Not supported: \b, \p, references, and looking ahead or behind.
#pragma once

#include <functional>
#include <string_view>

#include "nought/grammar/grammar.h"

namespace nought {

/// How a character of a class is written, for instance within a JSON string.
using WriteCharacters = std::function<Grammar::Expression(const Grammar::CodePoints&)>;

/// The texts in which the pattern is found; of one that begins with ^ and ends with $, those that match it whole.
/// whole: those that match it whole in any case. ConfigError says what is malformed or not supported, and where.
Grammar::Expression regex_expression(Grammar& grammar, std::string_view pattern, bool whole,
                                     const WriteCharacters& write);

}  // namespace nought
