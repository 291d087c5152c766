#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "nought/chat/jinja_machine.h"
#include "nought/chat/jinja_scanner.h"

namespace nought::jinja {

namespace {

using Assignment = std::function<void(Machine&, const Value&)>;

/// What stands in brackets: values, with keys before them in a mapping, and names before some arguments.
struct Elements {
  Items::Kind kind = Items::kList;
  std::vector<Expression> values = {};
  std::vector<Value> keys = {};

  Items operator()(Machine& machine) const {
    Items items{.kind = kind, .keys = keys};
    for (const Expression& each : values) items.values.push_back(each(machine));
    return items;
  }
};

/// A macro, which may be called before it is defined.
struct Macro {
  size_t called_at = 0;
  std::vector<Value> parameters = {};
  std::vector<Expression> defaults = {};
  Statement body = {};
};

/// What run() writes, in a scope of its own within the scope `outside`.
template <class Run>
Text written(Machine& machine, Scope* outside, Run run) {
  Rendered text;
  Scope scope{outside};
  const ScopedValue<Rendered*> out(machine.out, &text);
  const ScopedValue<Scope*> inner(machine.innermost, &scope);
  run();
  machine.budget.step(text.size() / 4);
  return text.text();
}

/// The variable "loop".
Value about_loop(const std::vector<Value>& items, size_t i) {
  static const std::vector<Value> kKeys = [] {
    std::vector<Value> keys;
    for (const char* each : {"index", "index0", "revindex", "revindex0", "length", "first", "last", "depth", "depth0",
                             "previtem", "nextitem"})
      keys.emplace_back(from_utf8(each));
    return keys;
  }();
  const auto at = static_cast<int64_t>(i), size = static_cast<int64_t>(items.size());
  const Value before = i > 0 ? items[i - 1] : Value(), after = i + 1 < items.size() ? items[i + 1] : Value();
  return Items{.kind = Items::kMap,
               .values = {at + 1, at, size - at, size - at - 1, size, at == 0, at + 1 == size, int64_t{1}, int64_t{0},
                          before, after},
               .keys = kKeys};
}

class Parser : private Scanner {
 public:
  using Scanner::Scanner;

  Statement run(bool& marks_targets) {
    const Statement program = body({""});
    marks_targets = marks_targets_;
    for (const auto& [name, macro] : macros_) {
      if (macro->body) continue;
      go_to(macro->called_at);
      refuse("{}", not_supported(kFunction, name));
    }
    return {0, [program, macros = macros_](Machine& m) { program(m); }};
  }

 private:
  ScopedValue<int> nested(int more = 1) {
    if (nesting_ + more > kMaxNesting) refuse("nested deeper than {}", kMaxNesting);
    return ScopedValue<int>(nesting_, nesting_ + more);
  }

  // Expressions, from what binds least to what binds most.

  Expression constant(Value value) const {
    return {at(), [=](Machine&) { return value; }};
  }
  Expression expression() {
    const auto deeper = nested();
    Expression value = operation();
    for (int length = 1; take("if"); ++length) {
      const auto longer = nested(length);
      const Expression test = operation();
      const Expression other = take("else") ? expression() : constant(Value::undefined("the value without an else"));
      value = {at(), [=](Machine& m) { return test(m).truth() ? value(m) : other(m); }};
    }
    return value;
  }
  /// What one() reads, up to a closing bracket.
  template <class One>
  Expression elements(Items::Kind kind, std::string_view close, One one) {
    Elements all{kind};
    separated(close, [&] { one(all); });
    return {at(), [=](Machine& m) -> Value { return all(m); }};
  }
  enum Level : size_t { kOr, kAnd, kNot, kComparison, kSum, kJoin, kProduct, kUnary };
  /// The operator that stands here, if it is of that level; else "".
  std::string_view operator_of(size_t level) {
    static const std::array<std::vector<std::string_view>, kUnary> kOperators{
        {{"or"}, {"and"}, {}, {"==", "!=", "<=", ">=", "<", ">", "in"}, {"+", "-"}, {"~"}, {"*", "%"}}};
    for (const char* each : {"**", "//", "/"})
      if (sees(each)) refuse("the operator \"{}\" is not supported", each);
    for (const std::string_view each : kOperators[level])
      if (take(each)) return each;
    const size_t before = at();
    if (level == kComparison && take("not") && take("in")) return "not in";
    go_to(before);
    return "";
  }
  /// Operators of one level, from left to right. Each makes the code deeper.
  Expression operation(size_t level = kOr) {
    if (level == kUnary) return filters(unary());
    if (level == kNot) {
      const auto deeper = nested();
      if (!take("not")) return operation(level + 1);
      const Expression value = operation(level);
      return {at(), [=](Machine& m) { return !value(m).truth(); }};
    }
    Expression left = operation(level + 1);
    std::string_view sign = operator_of(level);
    for (int length = 1; !sign.empty(); ++length) {
      const auto deeper = nested(length);
      if (level == kComparison && length > 1) refuse("comparisons in a chain are not supported: write \"and\"");
      const Expression right = operation(level + 1);
      left = {at(), [=](Machine& m) {
                Value first = left(m);
                if (level <= kAnd) return first.truth() == (level == kOr) ? first : right(m);
                const Value second = right(m);
                return binary(sign, std::move(first), second, m.budget);
              }};
      sign = operator_of(level);
    }
    return left;
  }
  Expression unary() {
    const auto deeper = nested();
    if (!take("-")) return postfix(primary());
    const Expression value = unary();
    return {at(), [=](Machine& m) { return binary("-", int64_t{0}, value(m), m.budget); }};
  }
  /// Strings that stand beside each other are one.
  std::string strings() {
    std::string text;
    while (sees_string()) text += string();
    return text;
  }
  Expression primary() {
    if (sees_string()) return constant(from_utf8(strings()));
    if (sees_number()) return constant(number());
    if (take("true") || take("True")) return constant(true);
    if (take("false") || take("False")) return constant(false);
    if (take("none") || take("None")) return constant(Value::None());
    if (take("(")) return in_brackets();
    if (take("[")) return elements(Items::kList, "]", [&](Elements& all) { all.values.push_back(expression()); });
    if (std::set<std::string> known; take("{"))
      return elements(Items::kMap, "}", [&](Elements& all) {
        if (!sees_string()) refuse("the key of a mapping must be a string in quotes, found {}", found());
        const std::string key = strings();
        if (!known.insert(key).second) refuse("a mapping has the key \"{}\" twice", key);
        all.keys.emplace_back(from_utf8(key));
        expect(":");
        all.values.push_back(expression());
      });
    if (word().empty()) refuse("expected an expression, found {}", found());
    const std::string name = this->name();
    if (sees("(")) return find_builtin(kFunction, name) ? builtin(kFunction, name, constant({})) : call(name);
    return {at(), [name = from_utf8(name)](Machine& m) { return m.look_up(name); }};
  }
  /// A tuple, or one expression.
  Expression in_brackets() {
    Elements all{Items::kTuple};
    bool is_tuple = sees(")");
    separated(")", [&] {
      all.values.push_back(expression());
      is_tuple = is_tuple || sees(",");
    });
    return is_tuple ? Expression(at(), [=](Machine& m) -> Value { return all(m); }) : all.values[0];
  }
  Expression postfix(Expression value) {
    for (int length = 1; sees(".") || sees("["); ++length) {
      const auto deeper = nested(length);
      if (take("[")) {
        value = subscript(value);
        continue;
      }
      expect(".");
      const std::string name = this->name();
      value = sees("(") ? builtin(kMethod, name, value) : attribute(value, name);
    }
    return value;
  }
  Expression attribute(const Expression& value, const std::string& name) const {
    const bool is_method = find_builtin(kMethod, name) && (find_builtin(kMethod, name)->roles & kOfMap) != 0;
    return {at(), [=, key = Value(from_utf8(name))](Machine& m) {
              const Value in = value(m);
              require<ConfigError>(!is_method || !in.map(),
                                   "\"{}\" is a method of mappings: write [\"{}\"] for the key", name, name);
              return item_of(in, key, m.budget);
            }};
  }
  /// One element, or a slice.
  Expression subscript(const Expression& value) {
    std::vector<Expression> parts;
    do {
      parts.push_back(sees(":") || (sees("]") && !parts.empty()) ? constant({}) : expression());
    } while (parts.size() < 3 && take(":"));
    expect("]");
    const bool is_slice = parts.size() > 1;
    parts.resize(3, constant({}));
    return {at(), [=](Machine& m) {
              const Value in = value(m), begin = parts[0](m);
              if (!is_slice) return item_of(in, begin, m.budget);
              const Value end = parts[1](m);
              return slice_of(in, begin, end, parts[2](m), m.budget);
            }};
  }
  Expression call(const std::string& name) {
    const Macro* macro = &macro_of(name);
    const Elements given = arguments();
    return {at(), [=](Machine& m) -> Value {
              const Items all = given(m);
              const auto bound = bind_arguments(name, macro->parameters, all, m.budget);
              return written(m, m.global, [&] {
                for (size_t i = 0; i < bound.size(); ++i)
                  m.assign(macro->parameters[i], bound[i] ? *bound[i] : macro->defaults[i](m));
                macro->body(m);
              });
            }};
  }
  /// The arguments in brackets, if there are any.
  Elements arguments() {
    Elements all;
    const auto one = [&] {
      const size_t before = at();
      const std::string name(word());
      advance(name.size());
      const bool is_named = !name.empty() && !sees("==") && take("=");
      if (!is_named) go_to(before);
      all.keys.push_back(is_named ? Value(from_utf8(name)) : Value());
      all.values.push_back(expression());
    };
    if (take("(")) separated(")", one);
    return all;
  }
  Expression builtin(Role role, const std::string& name, const Expression& self) {
    const Builtin* builtin = find_builtin(role, name);
    if (!builtin) refuse("{}", not_supported(role, name));
    const Elements given = arguments();
    return {at(), [=](Machine& m) {
              const Value value = self(m);
              return run_builtin(*builtin, role, name, m, value, given(m));
            }};
  }
  /// What follows a value: filters and tests.
  Expression filters(Expression value) {
    for (int length = 1; sees("|") || sees("is"); ++length) {
      const auto deeper = nested(length);
      if (take("|")) {
        value = builtin(kFilter, name(), value);
        continue;
      }
      expect("is");
      const bool negated = take("not");
      const Expression holds = builtin(kTest, name(), value);
      value = {at(), [=](Machine& m) { return holds(m).truth() != negated; }};
    }
    return value;
  }

  // Statements.

  /// Everything up to a tag of `ends`, which is read and left in `tag_`; "" is the end of the source.
  Statement body(const std::vector<std::string_view>& ends) {
    const auto deeper = nested();
    const size_t begin = at();
    std::vector<Statement> all;
    while (true) {
      if (const std::string piece = text(); !piece.empty()) all.push_back(output(constant(from_utf8(piece))));
      const bool is_end = at_end(), is_output = !is_end && open();
      tag_ = is_end || is_output ? "" : name();
      if (is_output) {
        all.push_back(output(expression()));
        close("}}");
      } else if (std::find(ends.begin(), ends.end(), tag_) != ends.end()) {
        break;
      } else {
        if (is_end) go_to(begin);
        if (is_end) refuse("expected the tag \"{}\" before the end", ends.back());
        all.push_back(statement());
      }
    }
    return {begin, [=](Machine& m) {
              for (size_t i = 0; i < all.size() && m.flow == Flow::on; ++i) all[i](m);
            }};
  }
  /// The end of this tag, the same, and the end of the closing tag.
  Statement body_until(std::string_view end) {
    close("%}");
    const Statement statements = body({end});
    close("%}");
    return statements;
  }
  Statement output(const Expression& value) const {
    return {at(), [=](Machine& m) {
              const Value written = value(m);
              if (!written.text()) return m.out->write(to_text(written, m.budget));
              m.budget.touch(*written.text());
              m.out->write(*written.text());
            }};
  }
  Statement statement() {
    if (tag_ == "if") return branches();
    if (tag_ == "for") return loop();
    if (tag_ == "set") return assignment();
    if (tag_ == "macro") return macro();
    if (tag_ == "generation") {
      marks_targets_ = true;
      return block("endgeneration", [](Machine& m, const Text& text) { m.out->write(text, kTarget); });
    }
    if (tag_ != "break" && tag_ != "continue") refuse("the tag \"{}\" is not supported", tag_);
    if (loops_ == 0) refuse("the tag \"{}\" stands outside of a loop", tag_);
    const Flow flow = tag_ == "break" ? Flow::leave : Flow::next;
    close("%}");
    return {at(), [=](Machine& m) { m.flow = flow; }};
  }
  /// A body with a scope of its own, whose text `use` is given.
  template <class Use>
  Statement block(std::string_view end, Use use) {
    const ScopedValue<int> inside(blocks_, blocks_ + 1);
    const Statement body = body_until(end);
    return {at(), [=](Machine& m) {
              const Text text = written(m, m.innermost, [&] { body(m); });
              use(m, text);
            }};
  }
  Statement branches() {
    std::vector<std::pair<Expression, Statement>> all;
    while (tag_ != "endif") {
      const bool is_last = tag_ == "else";
      const Expression test = is_last ? constant(true) : expression();
      close("%}");
      all.emplace_back(test, is_last ? body({"endif"}) : body({"elif", "else", "endif"}));
    }
    close("%}");
    return {at(), [=](Machine& m) {
              for (const auto& [test, then] : all)
                if (test(m).truth()) return then(m);
            }};
  }
  Statement loop() {
    const Assignment assign = target();
    expect("in");
    const Expression source = operation(), condition = take("if") ? expression() : constant(true);
    const ScopedValue<int> inside(blocks_, blocks_ + 1), in_loop(loops_, loops_ + 1);
    const Statement body = body_until("endfor");
    return {at(), [=, loop = Value(from_utf8("loop"))](Machine& m) {
              std::vector<Value> items = elements_of(source(m), m.budget);
              Scope scope{m.innermost};
              const ScopedValue<Scope*> inner(m.innermost, &scope);
              std::erase_if(items, [&](const Value& each) {
                assign(m, each);
                return !condition(m).truth();
              });
              for (size_t i = 0; i < items.size() && m.flow != Flow::leave; ++i) {
                m.flow = Flow::on;
                scope.names = {};
                m.budget.step(16);  // what "loop" has
                m.assign(loop, about_loop(items, i));
                assign(m, items[i]);
                body(m);
              }
              m.flow = Flow::on;
            }};
  }
  Statement assignment() {
    const Assignment assign = target();
    if (!take("=")) return block("endset", assign);
    const Expression value = expression();
    close("%}");
    return {at(), [=](Machine& m) { assign(m, value(m)); }};
  }
  /// What a loop or a set assigns to: a name, several, or an attribute of a namespace.
  Assignment target() {
    std::vector<Value> names;
    do {
      names.emplace_back(from_utf8(name()));
    } while (take(","));
    if (names.size() == 1 && take("."))
      return [space = *names[0].text(), attribute = Value(from_utf8(name()))](Machine& m, const Value& value) {
        const Value found = m.look_up(space);
        require<ConfigError>(found.space(), "\"{}\" is no namespace: its attribute can not be set", to_utf8(space));
        m.assign(*found.space(), attribute, value);
      };
    return [=](Machine& m, const Value& value) {
      if (names.size() == 1) return m.assign(names[0], value);
      const std::vector<Value> items = elements_of(value, m.budget);
      require<ConfigError>(items.size() == names.size(), "{} values for {} names", items.size(), names.size());
      for (size_t i = 0; i < items.size(); ++i) m.assign(names[i], items[i]);
    };
  }
  Macro& macro_of(const std::string& name) {
    return *macros_.try_emplace(name, std::make_shared<Macro>(Macro{at()})).first->second;
  }
  Statement macro() {
    if (blocks_ > 0) refuse("a macro within another block is not supported");
    const std::string name = this->name();
    Macro& macro = macro_of(name);
    if (macro.body || find_builtin(kFunction, name)) refuse("there is another function \"{}\"", name);
    expect("(");
    separated(")", [&] {
      const std::string parameter = this->name();
      macro.parameters.emplace_back(from_utf8(parameter));
      if (macro.parameters.size() > 100) refuse("a macro has more than 100 parameters");
      macro.defaults.push_back(take("=") ? expression() : constant(Value::undefined(parameter)));
    });
    const ScopedValue<int> inside(blocks_, blocks_ + 1);
    macro.body = body_until("endmacro");
    return {at(), [](Machine&) {}};
  }

  int nesting_ = 0, blocks_ = 0, loops_ = 0;
  std::string tag_;  // the last one
  bool marks_targets_ = false;
  std::map<std::string, std::shared_ptr<Macro>> macros_;
};

}  // namespace

Statement parse(std::string_view source, bool& marks_targets) { return Parser(source).run(marks_targets); }

}  // namespace nought::jinja
