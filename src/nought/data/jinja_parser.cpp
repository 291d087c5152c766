#include <algorithm>
#include <charconv>
#include <set>

#include "nought/base/error.h"
#include "nought/base/text.h"
#include "nought/data/jinja_builtins.h"
#include "nought/data/jinja_lexer.h"
#include "nought/data/jinja_syntax.h"

namespace nought::jinja {

namespace {

using Kind = Node::Kind;
using Body = std::vector<NodePtr>;

constexpr int kMaxNesting = 120;  // of expressions and blocks: what walks the tree recurses

class Parser {
 public:
  explicit Parser(std::string_view source) : tokens_(lex(source)) {}

  Body run() {
    Body program = body({});
    for (const auto& [name, line] : called_)
      if (!assigned_.contains(name) && name != "caller" && !find_builtin(functions(), name))
        unknown(line, "function", name, functions());
    return program;
  }

 private:
  /// How deep the parser is.
  class Nested {
   public:
    Nested(Parser& parser, int more = 1) : parser_(parser), more_(more) {
      parser.nesting_ += more;
      if (parser.nesting_ > kMaxNesting) parser.refuse("nested deeper than {}", kMaxNesting);
    }
    ~Nested() { parser_.nesting_ -= more_; }

   private:
    Parser& parser_;
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
  /// The same, and the closing tag.
  Body body_until(std::string_view end) {
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
      expect_end_of_block();
      made->body = body_until("endgeneration");
    } else if (tag == "filter") {
      made = node(Kind::filtered, "", filters(node(Kind::piped), true));
      expect_end_of_block();
      made->body = body_until("endfilter");
    } else if (tag == "with") {
      made = node(Kind::with);
      do {
        made->arguments.push_back({assigned(expect_name()), nullptr});
        expect("=");
        made->arguments.back().value = expression();
      } while (take(","));
      expect_end_of_block();
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
      NodePtr branch = node(Kind::branch, "", nullptr);
      expect_end_of_block();
      branch->body = body({"endif"});
      made->body.push_back(std::move(branch));
      ++at_;
    }
    ++at_;
    expect_end_of_block();
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
      expect_end_of_block();
      made->otherwise = body({"endfor"});
      ++at_;
    }
    ++at_;
    expect_end_of_block();
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
    expect_end_of_block();
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
    expect_end_of_block();
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

  // Expressions, in the order of jinja2's precedence.

  NodePtr expression() {
    const Nested nested(*this);
    NodePtr value = logic_or();
    while (take_name("if")) {
      value = node(Kind::condition, "", std::move(value), logic_or());
      value->parts.push_back(take_name("else") ? expression() : nullptr);
    }
    return value;
  }
  /// One expression, or several with commas between.
  NodePtr tuple(bool with_condition = true) {
    const auto one = [&] { return with_condition ? expression() : logic_or(); };
    NodePtr first = one();
    if (!sees(",")) return first;
    first = node(Kind::tuple, "", std::move(first));
    while (take(",") && begins_expression()) first->parts.push_back(one());
    return first;
  }
  bool begins_expression() const {
    return !sees(Token::Kind::end_block) && !sees(Token::Kind::end_output) && !sees(")") && !sees("=");
  }
  /// Operators of one level, from left to right. Each makes the tree deeper.
  template <class Next>
  NodePtr chain(Kind kind, Next next, std::initializer_list<std::string_view> operators, bool are_names = false) {
    NodePtr left = next();
    int length = 0;
    while (true) {
      const auto is_here = [&](std::string_view each) { return are_names ? sees_name(each) : sees(each); };
      if (std::none_of(operators.begin(), operators.end(), is_here)) break;
      const Nested nested(*this, ++length);
      std::string name = tokens_[at_++].text;
      left = node(kind, std::move(name), std::move(left), next());
    }
    return left;
  }
  NodePtr logic_or() {
    return chain(Kind::logic, [&] { return logic_and(); }, {"or"}, true);
  }
  NodePtr logic_and() {
    return chain(Kind::logic, [&] { return logic_not(); }, {"and"}, true);
  }
  NodePtr logic_not() {
    const Nested nested(*this);
    if (!take_name("not")) return comparison();
    return node(Kind::negate, "", logic_not());
  }
  NodePtr comparison() {
    NodePtr left = sum();
    NodePtr all = nullptr;
    while (true) {
      std::string name;
      for (const std::string_view each : {"==", "!=", "<=", ">=", "<", ">"})
        if (name.empty() && take(each)) name = each;
      if (take_name("in")) name = "in";
      if (sees_name("not") && following().is(Token::Kind::name, "in")) name = "not in", at_ += 2;
      if (name.empty()) return all ? std::move(all) : std::move(left);
      if (!all) all = node(Kind::compare, "", std::move(left));
      all->arguments.push_back({std::move(name), nullptr});
      all->parts.push_back(sum());
    }
  }
  NodePtr sum() {
    return chain(Kind::binary, [&] { return joined(); }, {"+", "-"});
  }
  NodePtr joined() {
    return chain(Kind::binary, [&] { return product(); }, {"~"});
  }
  NodePtr product() {
    return chain(Kind::binary, [&] { return power(); }, {"*", "/", "//", "%"});
  }
  NodePtr power() {
    return chain(Kind::binary, [&] { return unary(true); }, {"**"});
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
    if (first.kind == Token::Kind::name) {
      ++at_;
      return named(first);
    }
    NodePtr value = node(Kind::constant);
    if (first.kind == Token::Kind::string) {
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
  NodePtr named(const Token& name) const {
    NodePtr value = node(Kind::constant);
    const std::string& text = name.text;
    if (text == "true" || text == "True" || text == "false" || text == "False") {
      value->value = text == "true" || text == "True";
    } else if (text == "none" || text == "None") {
      value->value = Value::None();
    } else {
      value = node(Kind::name, text);
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
    for (int i = 0; i < 2; ++i)
      made->parts.push_back(take(":") && !sees(":") && !sees("]") ? expression() : nullptr);
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

}  // namespace

std::vector<NodePtr> parse(std::string_view source) { return Parser(source).run(); }

}  // namespace nought::jinja
