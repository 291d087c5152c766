#include "nought/data/jinja_expressions.h"

namespace nought::jinja {

namespace {

using Body = std::vector<NodePtr>;

class Parser : private ExpressionParser {
 public:
  using ExpressionParser::ExpressionParser;

  Body run() {
    Body program = body({});
    for (const auto& [name, line] : called_)
      if (!assigned_.contains(name) && name != "caller" && !find_builtin(functions(), name))
        unknown(line, "function", name, functions());
    return program;
  }

 private:
  // Statements.

  /// Everything up to a block that begins with one of `ends`, which stays.
  Body body(const std::vector<std::string_view>& ends) {
    const Nested nested(*this);
    const int line = token().line;
    Body statements;
    while (!sees(Token::Kind::end)) {
      if (sees(Token::Kind::text)) {
        statements.push_back(node(Kind::text));
        statements.back()->value = Text(tokens_[at_++].text);
      } else if (sees(Token::Kind::begin_output)) {
        ++at_;
        statements.push_back(node(Kind::output, "", tuple()));
        if (!sees(Token::Kind::end_output)) refuse("expected \"}}}}\", found {}", found());
        ++at_;
      } else {
        const std::string& tag = following().text;
        if (std::find(ends.begin(), ends.end(), tag) != ends.end()) return statements;
        ++at_;
        statements.push_back(statement());
      }
    }
    if (!ends.empty()) fail<ConfigError>("line {}: expected the tag \"{}\" before the end", line, ends.back());
    return statements;
  }
  /// The end of this tag, the same, and the closing tag.
  Body body_until(std::string_view end) {
    expect_end_of_block();
    Body statements = body({end});
    at_ += 2;
    expect_end_of_block();
    return statements;
  }

  NodePtr statement() {
    const std::string tag = expect_name();
    if (tag == "if") return branches();
    if (tag == "for") return loop();
    if (tag == "set") return set();
    if (tag == "macro" || tag == "call") return macro(tag == "call");
    NodePtr made;
    if (tag == "break" || tag == "continue") {
      if (loops_ == 0) refuse("the tag \"{}\" stands outside of a loop", tag);
      made = node(tag == "break" ? Kind::leave : Kind::next);
      expect_end_of_block();
    } else if (tag == "generation") {
      made = node(Kind::generation);
      made->body = body_until("endgeneration");
    } else if (tag == "filter") {
      made = node(Kind::filtered, "", filters(node(Kind::piped), true));
      made->body = body_until("endfilter");
    } else if (tag == "with") {
      made = node(Kind::with);
      do {
        made->arguments.push_back({assigned(expect_name()), nullptr});
        expect("=");
        made->arguments.back().value = expression();
      } while (take(","));
      made->body = body_until("endwith");
    } else {
      --at_;
      refuse("the tag \"{}\" is not supported", tag);
    }
    return made;
  }

  NodePtr branches() {
    NodePtr made = node(Kind::branches);
    for (bool more = true; more;) {
      NodePtr branch = node(Kind::branch, "", tuple(false));
      expect_end_of_block();
      branch->body = body({"elif", "else", "endif"});
      made->body.push_back(std::move(branch));
      ++at_;
      more = take_name("elif");
    }
    if (take_name("else")) {
      made->body.push_back(node(Kind::branch, "", nullptr));
      made->body.back()->body = body_until("endif");
    } else {
      ++at_;
      expect_end_of_block();
    }
    return made;
  }
  NodePtr loop() {
    NodePtr made = node(Kind::loop, "", target());
    if (!take_name("in")) refuse("expected \"in\", found {}", found());
    made->parts.push_back(tuple(false));
    made->parts.push_back(take_name("if") ? expression() : nullptr);
    if (sees_name("recursive")) refuse("the word \"recursive\" of a loop is not supported");
    expect_end_of_block();
    ++loops_;
    made->body = body({"else", "endfor"});
    --loops_;
    ++at_;
    if (take_name("else")) {
      made->otherwise = body_until("endfor");
    } else {
      ++at_;
      expect_end_of_block();
    }
    return made;
  }
  NodePtr set() {
    NodePtr to = target(true);
    if (take("=")) {
      NodePtr made = node(Kind::set, "", std::move(to), tuple());
      expect_end_of_block();
      return made;
    }
    NodePtr made = node(Kind::set_block, "", std::move(to), filters(node(Kind::piped), false));
    made->body = body_until("endset");
    return made;
  }
  /// A macro, or a call with a block, which is a macro named "caller".
  NodePtr macro(bool is_call) {
    NodePtr made = node(is_call ? Kind::call_block : Kind::macro);
    if (!is_call) made->name = assigned(expect_name());
    if (!is_call || sees("(")) made->arguments = parameters();
    if (is_call) {
      made->parts.push_back(expression());
      if (made->parts[0]->kind != Kind::call) refuse("the tag \"call\" must name a macro and its arguments");
    }
    const int loops = std::exchange(loops_, 0);
    made->body = body_until(is_call ? "endcall" : "endmacro");
    loops_ = loops;
    return made;
  }
  std::vector<Argument> parameters() {
    std::vector<Argument> all;
    expect("(");
    while (!take(")")) {
      if (!all.empty()) expect(",");
      if (take(")")) break;
      all.push_back({assigned(expect_name()), nullptr});
      if (take("=")) all.back().value = expression();
    }
    return all;
  }
  std::string assigned(std::string name) {
    assigned_.insert(name);
    return name;
  }
  /// What a loop or a set assigns to: names, in a tuple too, or an attribute of a namespace.
  NodePtr target(bool with_attribute = false) {
    const auto one = [&] {
      NodePtr name = node(Kind::name, assigned(expect_name()));
      if (!with_attribute || !take(".")) return name;
      return node(Kind::attribute, expect_name(), std::move(name));
    };
    const bool bracket = take("(");
    NodePtr first = one();
    if (sees(",")) {
      first = node(Kind::tuple, "", std::move(first));
      while (take(","))
        if (sees(Token::Kind::name) && !sees_name("in")) first->parts.push_back(one());
    }
    if (bracket) expect(")");
    return first;
  }
};

}  // namespace

std::vector<NodePtr> parse(std::string_view source) { return Parser(source).run(); }

}  // namespace nought::jinja
