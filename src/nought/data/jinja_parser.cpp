#include <algorithm>
#include <array>
#include <set>

#include "nought/data/jinja_machine.h"
#include "nought/data/jinja_scanner.h"

namespace nought::jinja {

namespace {

using Given = std::function<Arguments(Machine&)>;

class Parser : private Scanner {
 public:
  using Scanner::Scanner;

  Statement run(bool& marks_targets) {
    Statement program = body({""});
    marks_targets = marks_targets_;
    for (const auto& [name, offset] : called_) {
      go_to(offset);
      if (!assigned_.contains(name)) known(kFunction, name);
    }
    return program;
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
    while (take("if")) {
      const Expression test = operation();
      const Expression other = take("else") ? expression() : constant(Value::undefined("the value without an else"));
      value = {at(), [=](Machine& m) { return test(m).truth() ? value(m) : other(m); }};
    }
    return value;
  }
  /// One expression, or several with commas between.
  Expression tuple(bool with_condition = true) {
    const auto one = [&] { return with_condition ? expression() : operation(); };
    std::vector<Expression> items{one()};
    if (!sees(",")) return items[0];
    while (take(",") && !sees(")") && !sees_end()) items.push_back(one());
    return list(items, true);
  }
  Expression list(const std::vector<Expression>& items, bool is_tuple) const {
    return {at(), [=](Machine& m) {
              std::vector<Value> values;
              for (const Expression& each : items) values.push_back(each(m));
              m.budget.allocate((values.size() + 2) * sizeof(Value));
              return Value::list(std::move(values), is_tuple);
            }};
  }
  enum Level : size_t { kOr, kAnd, kNot, kComparison, kSum, kJoin, kProduct, kUnary };
  /// The operator that stands here, if it is of that level; else "".
  std::string_view operator_of(size_t level) {
    static const std::array<std::vector<std::string_view>, kUnary> kOperators{
        {{"or"}, {"and"}, {}, {"==", "!=", "<=", ">=", "<", ">", "in"}, {"+", "-"}, {"~"}, {"*", "//", "/", "%"}}};
    if (sees("**")) refuse("the operator \"**\" is not supported");
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
                const Value first = left(m);
                if (level <= kAnd) return first.truth() == (level == kOr) ? first : right(m);
                const Value second = right(m);
                if (level == kComparison) return Value(compares(sign, first, second, m.budget));
                return binary(sign, first, second, m.budget);
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
  Expression primary() {
    if (sees_string()) return constant(Text(string()));
    if (sees_number()) return constant(number());
    if (take("true") || take("True")) return constant(true);
    if (take("false") || take("False")) return constant(false);
    if (take("none") || take("None")) return constant(Value::None());
    if (take("{")) return map();
    if (take("(")) {
      if (take(")")) return list({}, true);
      const Expression value = tuple();
      expect(")");
      return value;
    }
    if (take("[")) {
      std::vector<Expression> items;
      separated("]", [&] { items.push_back(expression()); });
      return list(items, false);
    }
    if (word().empty()) refuse("expected an expression, found {}", found());
    const std::string name = this->name();
    if (sees("(")) called_.emplace_back(name, at());
    return {at(), [=](Machine& m) { return m.look_up(name); }};
  }
  Expression map() {
    std::vector<std::pair<Expression, Expression>> items;
    separated("}", [&] {
      const Expression key = expression();
      expect(":");
      items.emplace_back(key, expression());
    });
    return {at(), [=](Machine& m) {
              std::vector<std::pair<Text, Value>> values;
              for (const auto& [key, value] : items) {
                const Value name = key(m);
                require<ConfigError>(name.text(), "the key of a mapping is {}, expected a string", name.describe());
                m.budget.step(values.size() / 8);
                m.budget.allocate(2 * sizeof(Value) + sizeof(Text) + name.text()->size());
                const auto is_same = [&](const auto& each) { return each.first.str() == name.text()->str(); };
                require<ConfigError>(std::none_of(values.begin(), values.end(), is_same), "a mapping has {} twice",
                                     name.describe());
                values.emplace_back(*name.text(), value(m));
              }
              return Value::map(std::move(values));
            }};
  }
  Expression postfix(Expression value) {
    for (int length = 1; sees(".") || sees("[") || sees("("); ++length) {
      const auto deeper = nested(length);
      if (sees("(")) {
        value = call(value);
      } else if (take("[")) {
        value = subscript(value);
      } else {
        expect(".");
        const std::string attribute = name();
        const auto look_up = [=](Machine& m) { return attribute_of(value(m), attribute); };
        value = sees("(") ? builtin(kTextMethod | kMapMethod, attribute, value) : Expression(at(), look_up);
      }
    }
    return value;
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
  Expression call(const Expression& callee) {
    const Given given = arguments();
    return {at(), [=](Machine& m) {
              const Value value = callee(m);
              require<ConfigError>(value.object() && value.object()->call, "{} can not be called", value.describe());
              return value.object()->call(m, given(m));
            }};
  }
  /// The arguments in brackets, if there are any.
  Given arguments() {
    std::vector<std::pair<std::string, Expression>> all;
    const auto one = [&] {
      const size_t before = at();
      std::string name = word().empty() ? "" : this->name();
      if (name.empty() || sees("==") || !take("=")) {
        name.clear();
        go_to(before);
      }
      all.emplace_back(name, expression());
    };
    if (take("(")) separated(")", one);
    return [=](Machine& m) {
      Arguments given;
      for (const auto& [name, value] : all) {
        if (name.empty()) given.positional.push_back(value(m));
        if (!name.empty()) given.named.emplace_back(name, value(m));
      }
      return given;
    };
  }
  const Builtin& known(int roles, std::string_view name) const {
    const Builtin* found = find_builtin(roles, name);
    if (!found) refuse("{}", not_supported(roles, name));
    return *found;
  }
  Expression builtin(int roles, const std::string& name, const Expression& self) {
    const Builtin& found = known(roles, name);
    const Given given = arguments();
    const bool is_method = (roles & (kTextMethod | kMapMethod)) != 0;
    return {at(), [=, &found](Machine& m) {
              Value value = self(m);
              const bool is_of_text = (found.roles & kTextMethod) != 0;
              require<ConfigError>(!is_method || (is_of_text ? value.text() != nullptr : value.map() != nullptr),
                                   "{} has no method \"{}\"", value.describe(), found.name);
              return run_builtin(found, m, std::move(value), given(m));
            }};
  }
  /// What follows a value: filters and tests. bare: the first filter has no "|" before it.
  Expression filters(Expression value, bool bare = false) {
    for (int length = 1; bare || sees("|") || sees("is"); ++length, bare = false) {
      const auto deeper = nested(length);
      if (bare || take("|")) {
        value = builtin(kFilter, name(), value);
      } else {
        expect("is");
        const bool negated = take("not");
        const Expression holds = builtin(kTest, name(), value);
        value = {at(), [=](Machine& m) { return holds(m).truth() != negated; }};
      }
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
      if (const std::string piece = text(); !piece.empty()) all.push_back(output(constant(Text(piece))));
      const bool is_end = at_end(), is_output = !is_end && open();
      tag_ = is_end || is_output ? "" : name();
      if (is_output) {
        all.push_back(output(tuple()));
        close("}}");
      } else if (std::find(ends.begin(), ends.end(), tag_) != ends.end()) {
        break;
      } else {
        if (is_end) go_to(begin);
        if (is_end) refuse("expected the tag \"{}\" before the end", ends.back());
        all.push_back(statement());
      }
    }
    return {begin, [=](Machine& m, Text& out) {
              Flow flow = Flow::on;
              for (size_t i = 0; i < all.size() && flow == Flow::on; ++i) flow = all[i](m, out);
              return flow;
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
    return {at(), [=](Machine& m, Text& out) {
              out.append(to_text(value(m), m.budget));
              return Flow::on;
            }};
  }
  Statement statement() {
    if (tag_ == "if") return branches();
    if (tag_ == "for") return loop();
    if (tag_ == "set") return assignment();
    if (tag_ == "macro") return macro();
    if (tag_ == "filter") {
      const Expression value = filters(piped(), true);
      return block("endfilter", [=](Machine& m, Text& out) { out.append(to_text(value(m), m.budget)); });
    }
    if (tag_ == "generation") {
      marks_targets_ = true;
      return block("endgeneration", [](Machine& m, Text& out) {
        Text text = *m.piped.text();
        text.mark(Text::kTarget);
        out.append(text);
      });
    }
    if (tag_ != "break" && tag_ != "continue") refuse("the tag \"{}\" is not supported", tag_);
    if (loops_ == 0) refuse("the tag \"{}\" stands outside of a loop", tag_);
    const Flow flow = tag_ == "break" ? Flow::leave : Flow::next;
    close("%}");
    return {at(), [=](Machine&, Text&) { return flow; }};
  }
  Expression piped() const {
    return {at(), [](Machine& m) { return m.piped; }};
  }
  /// A body with a scope of its own, whose text `use` finds piped.
  template <class Use>
  Statement block(std::string_view end, Use use) {
    const ScopedValue<int> inside(blocks_, blocks_ + 1);
    const Statement body = body_until(end);
    return {at(), [=](Machine& m, Text& out) {
              Text text;
              const Flow flow = [&] {
                Scope scope(m);
                return body(m, text);
              }();
              m.budget.allocate(text.size());
              m.piped = std::move(text);
              use(m, out);
              return flow;
            }};
  }
  Statement branches() {
    std::vector<std::pair<Expression, Statement>> all;
    while (tag_ != "endif") {
      const bool is_last = tag_ == "else";
      const Expression test = is_last ? constant(true) : tuple(false);
      close("%}");
      all.emplace_back(test, is_last ? body({"endif"}) : body({"elif", "else", "endif"}));
    }
    close("%}");
    return {at(), [=](Machine& m, Text& out) {
              for (const auto& [test, then] : all)
                if (test(m).truth()) return then(m, out);
              return Flow::on;
            }};
  }
  Statement loop() {
    const Target target = this->target();
    expect("in");
    const Expression source = tuple(false), condition = take("if") ? expression() : constant(true);
    close("%}");
    const ScopedValue<int> inside(blocks_, blocks_ + 1), in_loop(loops_, loops_ + 1);
    const Statement body = this->body({"endfor"});
    close("%}");
    return {at(), [=](Machine& m, Text& out) {
              std::vector<Value> items = elements_of(source(m), m.budget);
              std::erase_if(items, [&](const Value& each) {
                Scope scope(m);
                target.assign(m, each);
                return !condition(m).truth();
              });
              const auto loop = m.make({"a loop"});
              for (size_t i = 0; i < items.size(); ++i) {
                Scope scope(m);
                loop->attributes = attributes_of_loop(items, i);
                m.assign("loop", loop);
                target.assign(m, items[i]);
                if (body(m, out) == Flow::leave) break;
              }
              return Flow::on;
            }};
  }
  static Variables attributes_of_loop(const std::vector<Value>& items, size_t i) {
    const auto index = static_cast<int64_t>(i), size = static_cast<int64_t>(items.size());
    const Value before = i > 0 ? items[i - 1] : Value::undefined("previtem");
    const Value after = i + 1 < items.size() ? items[i + 1] : Value::undefined("nextitem");
    return {
        {"index", index + 1},  {"index0", index},           {"revindex", size - index}, {"revindex0", size - index - 1},
        {"first", index == 0}, {"last", index + 1 == size}, {"length", size},           {"previtem", before},
        {"nextitem", after},   {"depth", int64_t{1}},       {"depth0", int64_t{0}}};
  }
  Statement assignment() {
    const Target target = this->target();
    if (take("=")) {
      const Expression value = tuple();
      close("%}");
      return {at(), [=](Machine& m, Text&) {
                target.assign(m, value(m));
                return Flow::on;
              }};
    }
    const Expression value = filters(piped());
    return block("endset", [=](Machine& m, Text&) { target.assign(m, value(m)); });
  }
  Target target() {
    Target target;
    const bool bracket = take("(");
    do {
      target.names.push_back(assigned(name()));
      target.unpacks = target.unpacks || sees(",");
    } while (take(",") && !word().empty() && !sees("in"));
    if (bracket) expect(")");
    if (!target.unpacks && take(".")) target.attribute = name();
    return target;
  }
  Statement macro() {
    if (blocks_ > 0) refuse("a macro within another block is not supported");
    const std::string name = assigned(this->name());
    std::vector<std::string> names;
    std::vector<Expression> defaults;
    expect("(");
    separated(")", [&] {
      names.push_back(assigned(this->name()));
      defaults.push_back(take("=") ? expression() : constant(Value::undefined(names.back())));
    });
    const ScopedValue<int> inside(blocks_, blocks_ + 1);
    const Statement body = body_until("endmacro");
    const auto call = [=](Machine& m, Arguments given) -> Value {
      const auto bound = bind_arguments(name, names, std::move(given));
      Scope scope(m, m.global);
      for (size_t i = 0; i < names.size(); ++i) m.assign(names[i], bound[i] ? *bound[i] : defaults[i](m));
      Text out;
      body(m, out);
      return out;
    };
    return {at(), [=](Machine& m, Text&) {
              m.assign(name, m.make({"a macro", {}, call}));
              return Flow::on;
            }};
  }
  std::string assigned(std::string name) {
    assigned_.insert(name);
    return name;
  }

  int nesting_ = 0, blocks_ = 0, loops_ = 0;
  std::string tag_;  // the last one
  bool marks_targets_ = false;
  std::vector<std::pair<std::string, size_t>> called_;  // names that are called, and where
  std::set<std::string, std::less<>> assigned_;         // names that the program gives values
};

}  // namespace

Statement parse(std::string_view source, bool& marks_targets) { return Parser(source).run(marks_targets); }

}  // namespace nought::jinja
