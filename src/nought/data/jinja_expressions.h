// ExpressionParser: the expressions of a Jinja program, from its tokens. jinja_parser.cpp adds the statements.
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <set>

#include "nought/base/error.h"
#include "nought/base/text.h"
#include "nought/data/jinja_builtins.h"
#include "nought/data/jinja_lexer.h"
#include "nought/data/jinja_syntax.h"

namespace nought::jinja {

class ExpressionParser {
 public:
  explicit ExpressionParser(std::string_view source) : tokens_(lex(source)) {}

 protected:
  using Kind = Node::Kind;
  static constexpr int kMaxNesting = 120;  // what walks the tree of expressions and blocks recurses

  /// How deep the parser is.
  class Nested {
   public:
    Nested(ExpressionParser& parser, int more = 1) : parser_(parser), more_(more) {
      parser.nesting_ += more;
      if (parser.nesting_ > kMaxNesting) parser.refuse("nested deeper than {}", kMaxNesting);
    }
    ~Nested() { parser_.nesting_ -= more_; }

   private:
    ExpressionParser& parser_;
    int more_;
  };

  const Token& token() const { return tokens_[at_]; }
  const Token& following() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  bool sees(std::string_view sign) const { return token().is(Token::Kind::sign, sign); }
  bool sees_name(std::string_view name) const { return token().is(Token::Kind::name, name); }
  bool sees(Token::Kind kind) const { return token().kind == kind; }
  bool take(std::string_view sign) { return sees(sign) && (++at_, true); }
  bool take_name(std::string_view name) { return sees_name(name) && (++at_, true); }
  template <class... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> message, Args&&... args) const {
    fail<ConfigError>("line {}: {}", token().line, fmt::format(message, std::forward<Args>(args)...));
  }
  [[noreturn]] void unknown(int line, std::string_view what, std::string_view name, Builtins known) const {
    std::vector<std::string> names;
    for (const Builtin& each : known) names.emplace_back(each.name);
    fail<ConfigError>("line {}: the {} \"{}\" is not supported{}", line, what, name, did_you_mean(name, names));
  }
  void check_known(std::string_view what, std::string_view name, Builtins known) const {
    if (!find_builtin(known, name)) unknown(token().line, what, name, known);
  }
  void expect(std::string_view sign) {
    if (!take(sign)) refuse("expected \"{}\", found {}", sign, found());
  }
  std::string expect_name() {
    if (!sees(Token::Kind::name)) refuse("expected a name, found {}", found());
    return tokens_[at_++].text;
  }
  void expect_end_of_block() {
    if (!sees(Token::Kind::end_block)) refuse("expected \"%}}\", found {}", found());
    ++at_;
  }
  std::string found() const {
    if (sees(Token::Kind::end_block) || sees(Token::Kind::end_output) || sees(Token::Kind::end)) return "the end";
    return fmt::format("\"{}\"", token().text);
  }
  NodePtr node(Kind kind, std::string name = {}) const {
    return std::make_unique<Node>(Node{.kind = kind, .line = token().line, .name = std::move(name)});
  }
  NodePtr node(Kind kind, std::string name, NodePtr first, NodePtr second = nullptr) const {
    NodePtr made = node(kind, std::move(name));
    made->parts.push_back(std::move(first));
    if (second) made->parts.push_back(std::move(second));
    return made;
  }

  // Expressions, in the order of jinja2's precedence.

  NodePtr expression() {
    const Nested nested(*this);
    NodePtr value = operation(0);
    while (take_name("if")) {
      value = node(Kind::condition, "", std::move(value), operation(0));
      value->parts.push_back(take_name("else") ? expression() : nullptr);
    }
    return value;
  }
  /// One expression, or several with commas between.
  NodePtr tuple(bool with_condition = true) {
    const auto one = [&] { return with_condition ? expression() : operation(0); };
    NodePtr first = one();
    if (!sees(",")) return first;
    first = node(Kind::tuple, "", std::move(first));
    while (take(",") && begins_expression()) first->parts.push_back(one());
    return first;
  }
  bool begins_expression() const {
    return !sees(Token::Kind::end_block) && !sees(Token::Kind::end_output) && !sees(")") && !sees("=");
  }
  /// Operators that bind alike, from left to right; what binds more has a higher level. Each makes the tree deeper.
  NodePtr operation(size_t level) {
    struct Level {
      Kind kind;
      Token::Kind token;
      std::array<std::string_view, 4> operators;
    };
    static constexpr std::array<Level, 8> kLevels{{{Kind::logic, Token::Kind::name, {"or"}},
                                                   {Kind::logic, Token::Kind::name, {"and"}},
                                                   {Kind::negate, Token::Kind::name, {}},
                                                   {Kind::compare, Token::Kind::sign, {}},
                                                   {Kind::binary, Token::Kind::sign, {"+", "-"}},
                                                   {Kind::binary, Token::Kind::sign, {"~"}},
                                                   {Kind::binary, Token::Kind::sign, {"*", "/", "//", "%"}},
                                                   {Kind::binary, Token::Kind::sign, {"**"}}}};
    if (level == kLevels.size()) return unary(true);
    const Level& here = kLevels[level];
    if (here.kind == Kind::compare) return comparison(level + 1);
    if (here.kind == Kind::negate) {
      const Nested nested(*this);
      return take_name("not") ? node(Kind::negate, "", operation(level)) : operation(level + 1);
    }
    NodePtr left = operation(level + 1);
    const auto is_here = [&](std::string_view each) { return !each.empty() && token().is(here.token, each); };
    for (int length = 1; std::any_of(here.operators.begin(), here.operators.end(), is_here); ++length) {
      const Nested nested(*this, length);
      std::string name = tokens_[at_++].text;
      left = node(here.kind, std::move(name), std::move(left), operation(level + 1));
    }
    return left;
  }
  NodePtr comparison(size_t operand) {
    NodePtr left = operation(operand), all;
    while (true) {
      std::string name;
      for (const std::string_view each : {"==", "!=", "<=", ">=", "<", ">"})
        if (name.empty() && take(each)) name = each;
      if (take_name("in")) name = "in";
      if (sees_name("not") && following().is(Token::Kind::name, "in")) name = "not in", at_ += 2;
      if (name.empty()) return all ? std::move(all) : std::move(left);
      if (!all) all = node(Kind::compare, "", std::move(left));
      all->arguments.push_back({std::move(name), nullptr});
      all->parts.push_back(operation(operand));
    }
  }
  NodePtr unary(bool with_filters) {
    const Nested nested(*this);
    NodePtr value;
    if (sees("-") || sees("+")) {
      std::string name = tokens_[at_++].text;
      value = node(Kind::unary, std::move(name), unary(false));
    } else {
      value = postfix(primary());
    }
    return with_filters ? filters(std::move(value), false) : std::move(value);
  }

  NodePtr primary() {
    const Token& first = token();
    NodePtr value = node(Kind::constant);
    if (take_name("true") || take_name("True") || take_name("false") || take_name("False")) {
      value->value = first.text == "true" || first.text == "True";
    } else if (take_name("none") || take_name("None")) {
      value->value = Value::None();
    } else if (first.kind == Token::Kind::name) {
      value = node(Kind::name, expect_name());
    } else if (first.kind == Token::Kind::string) {
      std::string text;
      while (sees(Token::Kind::string)) text += tokens_[at_++].text;
      value->value = Text(text);
    } else if (first.kind == Token::Kind::integer) {
      int64_t number = 0;
      const auto [end, error] = std::from_chars(first.text.data(), first.text.data() + first.text.size(), number);
      if (error != std::errc() || *end != '\0') refuse("the integer {} has more than 64 bits", first.text);
      value->value = number;
      ++at_;
    } else if (first.kind == Token::Kind::real) {
      value->value = std::strtod(first.text.c_str(), nullptr);
      ++at_;
    } else if (take("(")) {
      if (take(")")) return node(Kind::tuple);
      value = tuple();
      expect(")");
    } else if (take("[")) {
      value = node(Kind::list);
      while (!take("]")) {
        if (!value->parts.empty()) expect(",");
        if (!sees("]")) value->parts.push_back(expression());
      }
    } else if (take("{")) {
      value = node(Kind::map);
      while (!take("}")) {
        if (!value->parts.empty()) expect(",");
        if (take("}")) break;
        value->parts.push_back(expression());
        expect(":");
        value->parts.push_back(expression());
      }
    } else {
      refuse("expected an expression, found {}", found());
    }
    return value;
  }
  NodePtr postfix(NodePtr value) {
    int length = 0;
    while (sees(".") || sees("[") || sees("(")) {
      const Nested nested(*this, ++length);
      if (sees("(")) {
        value = call(std::move(value));
      } else if (take("[")) {
        value = subscript(std::move(value));
      } else if (++at_; sees(Token::Kind::integer)) {
        value = node(Kind::item, "", std::move(value), primary());
      } else {
        value = node(Kind::attribute, expect_name(), std::move(value));
      }
    }
    return value;
  }
  NodePtr call(NodePtr callee) {
    NodePtr made;
    if (callee->kind == Kind::attribute) {
      made = node(Kind::method, callee->name, std::move(callee->parts[0]));
      check_known("method", made->name, methods());
    } else {
      if (callee->kind == Kind::name) called_.emplace_back(callee->name, token().line);
      made = node(Kind::call, "", std::move(callee));
    }
    made->arguments = arguments();
    return made;
  }
  std::vector<Argument> arguments() {
    std::vector<Argument> all;
    expect("(");
    while (!take(")")) {
      if (!all.empty()) expect(",");
      if (take(")")) break;
      if (sees("*") || sees("**")) refuse("arguments from a list (\"{}\") are not supported", token().text);
      const bool by_name = sees(Token::Kind::name) && following().is(Token::Kind::sign, "=");
      std::string name = by_name ? expect_name() : "";
      if (by_name) ++at_;
      all.push_back({std::move(name), expression()});
    }
    return all;
  }
  NodePtr subscript(NodePtr value) {
    NodePtr begin = sees(":") ? nullptr : expression();
    if (take("]")) return node(Kind::item, "", std::move(value), std::move(begin));
    NodePtr made = node(Kind::slice, "", std::move(value));
    made->parts.push_back(std::move(begin));
    for (int i = 0; i < 2; ++i) made->parts.push_back(take(":") && !sees(":") && !sees("]") ? expression() : nullptr);
    expect("]");
    return made;
  }
  /// What follows a value: filters, tests, and calls of what they give. bare: the first one has no "|" before it.
  NodePtr filters(NodePtr value, bool bare) {
    int length = 0;
    for (; bare || sees("|") || sees_name("is") || sees("("); bare = false) {
      const Nested nested(*this, ++length);
      if (sees("(")) {
        value = call(std::move(value));
      } else if (bare || take("|")) {
        value = node(Kind::filter, expect_name(), std::move(value));
        check_known("filter", value->name, jinja::filters());
        if (sees("(")) value->arguments = arguments();
      } else {
        ++at_;
        value = test(std::move(value));
      }
    }
    return value;
  }
  NodePtr test(NodePtr value) {
    const bool negated = take_name("not");
    NodePtr made = node(Kind::test, expect_name(), std::move(value));
    check_known("test", made->name, tests());
    const bool word = sees(Token::Kind::name) && !sees_name("else") && !sees_name("or") && !sees_name("and");
    if (sees("(")) {
      made->arguments = arguments();
    } else if (word || sees(Token::Kind::string) || sees(Token::Kind::integer) || sees(Token::Kind::real) ||
               sees("[") || sees("{")) {
      if (sees_name("is")) refuse("tests can not be chained");
      made->arguments.push_back({"", postfix(primary())});
    }
    return negated ? node(Kind::negate, "", std::move(made)) : std::move(made);
  }

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int nesting_ = 0, loops_ = 0;
  std::vector<std::pair<std::string, int>> called_;  // names that are called, and their lines
  std::set<std::string, std::less<>> assigned_;      // names that the program gives values
};

}  // namespace nought::jinja
