// Cuts the source of a Jinja program into tokens, as jinja2 does with trim_blocks and lstrip_blocks: what stands
// between tags loses the white space that the tags' signs and these two options take.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace nought::jinja {

struct Token {
  enum class Kind : uint8_t {
    text,          // between tags
    begin_output,  // {{
    end_output,    // }}
    begin_block,   // {%
    end_block,     // %}
    name,
    string,  // without quotes and escapes
    integer,
    real,
    sign,  // an operator or a bracket
    end    // the source has ended
  };
  Kind kind;
  int line;
  std::string text;

  bool is(Kind of, std::string_view spelt) const { return kind == of && text == spelt; }
};

/// The tokens; the last is Kind::end. ConfigError "line N: ..." for what is no token, and for a tag that is not closed.
std::vector<Token> lex(std::string_view source);

}  // namespace nought::jinja
