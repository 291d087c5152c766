// The syntax tree of a Jinja program, and its parser.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "nought/data/jinja_value.h"

namespace nought::jinja {

struct Node;
using NodePtr = std::unique_ptr<Node>;

/// An argument of a call, or a parameter of a macro with its default.
struct Argument {
  std::string name;  // "": by its place
  NodePtr value;     // null if a parameter has no default
};

struct Node {
  enum class Kind : uint8_t {
    // Expressions. `parts` are their operands in the order in which they are written.
    constant,   // value
    name,       // name
    list,       // parts
    tuple,      // parts
    map,        // parts: key, value, key, value, ...
    attribute,  // parts[0].name
    item,       // parts[0][parts[1]]
    slice,      // parts[0][parts[1]:parts[2]:parts[3]], null where nothing stands
    call,       // parts[0](arguments)
    method,     // parts[0].name(arguments)
    filter,     // parts[0]|name(arguments)
    test,       // parts[0] is name(arguments)
    negate,     // not parts[0]
    unary,      // name is + or -
    binary,     // name is the operator
    compare,    // parts[0] value.items[0] parts[1] value.items[1] ...: operators are the names of `arguments`
    logic,      // name is "and" or "or"
    condition,  // parts[0] if parts[1] else parts[2], which may be null
    piped,      // the text of a block, which goes through filters
    // Statements.
    text,        // value
    output,      // parts[0]
    branches,    // body: each a `branch`
    branch,      // body, if parts[0] holds or is null
    loop,        // for parts[0] in parts[1] if parts[2]: body; otherwise, if there was nothing
    set,         // parts[0] = parts[1]
    set_block,   // parts[0] = body, through the filters of parts[1]
    macro,       // name(arguments): body
    call_block,  // parts[0] with a caller(arguments): body
    filtered,    // body through the filters of parts[0]
    with,        // arguments hold in body
    generation,  // body is what an assistant says
    leave,       // break
    next         // continue
  };
  Kind kind;
  int line = 0;
  std::string name = {};
  Value value = {};
  std::vector<NodePtr> parts = {};
  std::vector<Argument> arguments = {};
  std::vector<NodePtr> body = {}, otherwise = {};
};

/// Parses a program. ConfigError "line N: ..." for what is malformed, and for a tag, a filter, a test, a method or a
/// function that is not known, by its name.
std::vector<NodePtr> parse(std::string_view source);

}  // namespace nought::jinja
