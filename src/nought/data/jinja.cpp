#include "nought/data/jinja.h"

#include <algorithm>
#include <map>

#include "nought/base/json.h"
#include "nought/base/text.h"
#include "nought/data/jinja_objects.h"
#include "nought/data/jinja_syntax.h"
#include "nought/data/unicode.h"

namespace nought::jinja {

namespace {

using Kind = Node::Kind;
using Body = std::vector<NodePtr>;

constexpr int kMaxRecursion = 500;  // blocks, expressions and macros may nest so deep
constexpr size_t kMaxSource = size_t{1} << 20;
constexpr int64_t kSteps = 4'000'000, kBytes = int64_t{64} << 20, kBytesPerByte = 256;

class Evaluator {
 public:
  Evaluator(Variables variables, const std::tm& now, Budget budget) : budget_(budget), now_(now) {
    scope_->names = std::move(variables);
    scope_ = std::make_shared<Scope>(Scope{{}, scope_});
  }
  /// What refers to itself through a macro or a namespace is taken apart.
  ~Evaluator() {
    for (const auto& each : namespaces_) each->clear();
    for (const auto& each : captured_) each->names.clear();
  }
  Evaluator(const Evaluator&) = delete;
  Evaluator& operator=(const Evaluator&) = delete;

  Text run(const Body& body) {
    Text out;
    execute(body, out);
    return out;
  }
  int line() const { return line_; }

 private:
  enum class Flow { on, leave, next };

  /// One level deeper, while it lives.
  class Deeper {
   public:
    Deeper(Evaluator& evaluator, const Node& node) : depth_(evaluator.depth_) {
      evaluator.line_ = node.line;
      evaluator.budget_.step();
      require<ConfigError>(depth_ < kMaxRecursion, "recurses deeper than {}", kMaxRecursion);
      ++depth_;
    }
    ~Deeper() { --depth_; }
    Deeper(const Deeper&) = delete;
    Deeper& operator=(const Deeper&) = delete;

   private:
    int& depth_;
  };
  /// Another scope, while it lives.
  class Within {
   public:
    Within(Evaluator& evaluator, std::shared_ptr<Scope> parent) : evaluator_(evaluator), before_(evaluator.scope_) {
      evaluator.scope_ = std::make_shared<Scope>(Scope{{}, std::move(parent)});
    }
    explicit Within(Evaluator& evaluator) : Within(evaluator, evaluator.scope_) {}
    ~Within() { evaluator_.scope_ = before_; }
    Within(const Within&) = delete;
    Within& operator=(const Within&) = delete;

   private:
    Evaluator& evaluator_;
    std::shared_ptr<Scope> before_;
  };

  // Statements.

  Flow execute(const Body& body, Text& out) {
    for (const NodePtr& each : body)
      if (const Flow flow = execute(*each, out); flow != Flow::on) return flow;
    return Flow::on;
  }
  Flow execute(const Node& node, Text& out) {
    const Deeper deeper(*this, node);
    switch (node.kind) {
      case Kind::text:
        budget_.allocate(node.value.text()->size());
        out.append(*node.value.text());
        break;
      case Kind::output:
        out.append(to_text(evaluate(*node.parts[0]), budget_));
        break;
      case Kind::branches:
        for (const NodePtr& branch : node.body)
          if (!branch->parts[0] || evaluate(*branch->parts[0]).truth()) return execute(branch->body, out);
        break;
      case Kind::loop:
        loop(node, out);
        break;
      case Kind::set:
        assign(*node.parts[0], evaluate(*node.parts[1]));
        break;
      case Kind::macro:
        assign_name(node.name, macro_of(node));
        break;
      case Kind::call_block:
        out.append(to_text(call(*node.parts[0], macro_of(node)), budget_));
        break;
      case Kind::leave:
        return Flow::leave;
      case Kind::next:
        return Flow::next;
      default:
        return block(node, out);
    }
    return Flow::on;
  }
  /// The blocks that have a scope of their own.
  Flow block(const Node& node, Text& out) {
    Text text;
    Flow flow = Flow::on;
    {
      const Within within(*this);
      for (const Argument& each : node.arguments) assign_name(each.name, evaluate(*each.value));
      flow = execute(node.body, text);
    }
    budget_.allocate(text.size());
    if (node.kind == Kind::set_block) {
      assign(*node.parts[0], piped(std::move(text), *node.parts[1]));
    } else if (node.kind == Kind::filtered) {
      out.append(to_text(piped(std::move(text), *node.parts[0]), budget_));
    } else {
      out.append(node.kind == Kind::generation ? text.with(Text::kTarget) : text);
    }
    return flow;
  }
  Value piped(Text text, const Node& filters) {
    piped_.emplace_back(std::move(text));
    Value result = evaluate(filters);
    piped_.pop_back();
    return result;
  }
  void loop(const Node& node, Text& out) {
    std::vector<Value> items = elements_of(evaluate(*node.parts[1]), budget_);
    if (node.parts[2])
      std::erase_if(items, [&](const Value& each) {
        const Within within(*this);
        assign(*node.parts[0], each);
        return !evaluate(*node.parts[2]).truth();
      });
    const Value all = Value::list(std::move(items));
    for (size_t i = 0; i < all.list()->items.size(); ++i) {
      const Within within(*this);
      assign_name("loop", Value(std::shared_ptr<Object>(std::make_shared<Loop>(all, i))));
      assign(*node.parts[0], all.list()->items[i]);
      if (execute(node.body, out) == Flow::leave) break;
    }
    if (all.truth()) return;
    const Within within(*this);
    execute(node.otherwise, out);
  }
  void assign_name(std::string_view name, Value value) {
    budget_.allocate(sizeof(Value) + name.size());
    scope_->set(name, std::move(value));
  }
  void assign(const Node& target, const Value& value) {
    if (target.kind == Kind::name) return assign_name(target.name, value);
    if (target.kind == Kind::attribute) {
      auto* space = dynamic_cast<Namespace*>(evaluate(*target.parts[0]).object());
      require<ConfigError>(space, "\"{}\" is no namespace: its \"{}\" can not be set", target.parts[0]->name,
                           target.name);
      budget_.allocate(sizeof(Value) + target.name.size());
      return space->set(target.name, value);
    }
    const std::vector<Value> items = elements_of(value, budget_);
    require<ConfigError>(items.size() == target.parts.size(), "{} values for {} names", items.size(),
                         target.parts.size());
    for (size_t i = 0; i < items.size(); ++i) assign(*target.parts[i], items[i]);
  }

  // Macros and calls.

  Value macro_of(const Node& node) {
    captured_.push_back(scope_);
    budget_.allocate(sizeof(Macro));
    return Value(std::shared_ptr<Object>(std::make_shared<Macro>(node, scope_)));
  }
  Call call_of(const Node& node, Value self) {
    Call call{budget_, now_, std::move(self), {}};
    for (const Argument& each : node.arguments) {
      Value value = evaluate(*each.value);
      if (each.name.empty()) call.positional.push_back(std::move(value));
      if (!each.name.empty()) call.named.emplace_back(each.name, std::move(value));
    }
    return call;
  }
  Value call(const Node& node, const Value& caller = {}) {
    const Value callee = evaluate(*node.parts[0]);
    Call made = call_of(node, {});
    if (const auto* function = dynamic_cast<const Function*>(callee.object())) {
      Value result = run_builtin(function->builtin(), std::move(made));
      if (dynamic_cast<Namespace*>(result.object()))
        namespaces_.push_back(std::dynamic_pointer_cast<Namespace>(result.shared_object()));
      return result;
    }
    const auto* macro = dynamic_cast<const Macro*>(callee.object());
    require<ConfigError>(macro, "{} can not be called", callee.describe());
    return run(*macro, made, caller);
  }
  Value run(const Macro& macro, Call& call, const Value& caller) {
    const Within within(*this, macro.scope());
    const std::vector<Argument>& parameters = macro.node().arguments;
    require<ConfigError>(call.positional.size() <= parameters.size(), "the macro \"{}\" takes {} arguments, got {}",
                         macro.node().name, parameters.size(), call.positional.size());
    for (const auto& given : call.named) {
      const auto is_given = [&](const Argument& each) { return each.name == given.first; };
      require<ConfigError>(std::any_of(parameters.begin(), parameters.end(), is_given),
                           "the macro \"{}\" has no argument \"{}\"", macro.node().name, given.first);
    }
    if (!caller.is_undefined()) assign_name("caller", caller);
    for (size_t i = 0; i < parameters.size(); ++i) {
      const auto named = std::find_if(call.named.begin(), call.named.end(),
                                      [&](const auto& each) { return each.first == parameters[i].name; });
      Value value = i < call.positional.size()  ? call.positional[i]
                    : named != call.named.end() ? named->second
                    : parameters[i].value       ? evaluate(*parameters[i].value)
                                                : Value::undefined(parameters[i].name);
      assign_name(parameters[i].name, std::move(value));
    }
    Text out;
    execute(macro.node().body, out);
    return out;
  }

  // Expressions.

  Value evaluate(const Node& node) {
    const Deeper deeper(*this, node);
    switch (node.kind) {
      case Kind::constant:
        return node.value;
      case Kind::name:
        return look_up(node.name);
      case Kind::list:
      case Kind::tuple:
        return list(node);
      case Kind::map:
        return map(node);
      case Kind::attribute:
        return attribute_of(evaluate(*node.parts[0]), node.name);
      case Kind::item:
        return item(node);
      case Kind::slice:
        return slice(node);
      case Kind::call:
        return call(node);
      case Kind::method:
        return builtin(node, methods());
      case Kind::filter:
        return builtin(node, filters());
      case Kind::test:
        return builtin(node, tests());
      case Kind::negate:
        return !evaluate(*node.parts[0]).truth();
      case Kind::piped:
        return piped_.back();
      default:
        return operation(node);
    }
  }
  Value operation(const Node& node) {
    if (node.kind == Kind::condition) {
      const bool holds = evaluate(*node.parts[1]).truth();
      if (!holds && !node.parts[2]) return Value::undefined("the value without an else");
      return evaluate(*node.parts[holds ? 0 : 2]);
    }
    Value first = evaluate(*node.parts[0]);
    if (node.kind == Kind::unary) return binary(node.name, int64_t{0}, first, budget_);
    if (node.kind == Kind::binary) return binary(node.name, first, evaluate(*node.parts[1]), budget_);
    if (node.kind == Kind::logic) return first.truth() == (node.name == "or") ? first : evaluate(*node.parts[1]);
    return comparison(node, std::move(first));
  }
  Value look_up(const std::string& name) {
    for (Scope* scope = scope_.get(); scope; scope = scope->parent.get()) {
      budget_.step();
      if (const Value* found = scope->find(name)) return *found;
    }
    if (const Builtin* builtin = find_builtin(functions(), name))
      return Value(std::shared_ptr<Object>(std::make_shared<Function>(*builtin)));
    return Value::undefined(name);
  }
  Value list(const Node& node) {
    std::vector<Value> items;
    for (const NodePtr& each : node.parts) items.push_back(evaluate(*each));
    budget_.allocate((items.size() + 2) * sizeof(Value));
    return Value::list(std::move(items), node.kind == Kind::tuple);
  }
  Value map(const Node& node) {
    std::map<std::string, size_t, std::less<>> places;
    std::vector<std::pair<Text, Value>> items;
    for (size_t i = 0; i < node.parts.size(); i += 2) {
      const Value key = evaluate(*node.parts[i]);
      require<ConfigError>(key.text(), "the key of a mapping is {}, expected a string", key.describe());
      const auto [place, is_new] = places.try_emplace(key.text()->str(), items.size());
      if (is_new) items.emplace_back(*key.text(), Value());
      items[place->second].second = evaluate(*node.parts[i + 1]);
      budget_.allocate(2 * sizeof(Value) + sizeof(Text) + key.text()->size());
    }
    return Value::map(std::move(items));
  }
  Value item(const Node& node) {
    const Value value = evaluate(*node.parts[0]);
    return item_of(value, evaluate(*node.parts[1]), budget_);
  }
  Value slice(const Node& node) {
    const auto part = [&](size_t i) { return node.parts[i] ? evaluate(*node.parts[i]) : Value(); };
    const Value value = evaluate(*node.parts[0]), begin = part(1), end = part(2);
    return slice_of(value, begin, end, part(3), budget_);
  }
  Value builtin(const Node& node, Builtins all) {
    Value self = evaluate(*node.parts[0]);
    if (node.kind == Kind::method)
      require<ConfigError>(!self.is_undefined(), "can not call \"{}\" of {}", node.name, self.describe());
    return run_builtin(*find_builtin(all, node.name), call_of(node, std::move(self)));
  }
  /// a < b < c as Python has it: each value once, up to the first that fails.
  Value comparison(const Node& node, Value left) {
    for (size_t i = 0; i < node.arguments.size(); ++i) {
      const Value right = evaluate(*node.parts[i + 1]);
      const std::string& sign = node.arguments[i].name;
      bool holds = false;
      if (sign == "in" || sign == "not in") {
        holds = contains(right, left, budget_) == (sign == "in");
      } else if (sign == "==" || sign == "!=") {
        holds = equal(left, right, budget_) == (sign == "==");
      } else {
        const int order = compare(left, right, budget_);
        holds = order == 0 ? sign.size() == 2 : (order < 0) == (sign[0] == '<');
      }
      if (!holds) return false;
      left = right;
    }
    return true;
  }

  Budget budget_;
  const std::tm& now_;
  std::shared_ptr<Scope> scope_ = std::make_shared<Scope>();
  std::vector<std::shared_ptr<Namespace>> namespaces_;
  std::vector<std::shared_ptr<Scope>> captured_;  // by macros
  std::vector<Value> piped_;
  int depth_ = 0, line_ = 0;
};

size_t bytes_of(const Value& value) {
  size_t bytes = sizeof(Value);
  if (value.text()) bytes += value.text()->size();
  if (value.list())
    for (const Value& each : value.list()->items) bytes += bytes_of(each);
  if (value.map())
    for (const auto& [key, each] : value.map()->items) bytes += key.size() + bytes_of(each);
  return bytes;
}

bool has_generation(const Body& body) {
  return std::any_of(body.begin(), body.end(), [](const NodePtr& node) {
    return node->kind == Kind::generation || has_generation(node->body) || has_generation(node->otherwise);
  });
}

}  // namespace

Program::Program(std::string name, std::string_view source) : name_(std::move(name)) {
  try {
    require<ConfigError>(source.size() <= kMaxSource, "has {} bytes, more than {}", source.size(), kMaxSource);
    require<ConfigError>(is_valid_utf8(source), "is no UTF-8");
    nodes_ = std::make_shared<const Body>(parse(source));
  } catch (const ConfigError& error) {
    fail<ConfigError>("the chat template {}: {}", name_, one_line(error.what()));
  }
  marks_targets_ = has_generation(*nodes_);
}

Text Program::render(Variables variables, const std::tm& now) const {
  size_t bytes = 0;
  for (const auto& [name, value] : variables) bytes += bytes_of(value);
  const auto input = static_cast<int64_t>(bytes);
  Evaluator evaluator(std::move(variables), now, Budget(kSteps + input, kBytes + kBytesPerByte * input));
  try {
    return evaluator.run(*nodes_);
  } catch (const Refusal& refusal) {
    fail<ConfigError>("the chat template {} refuses the conversation: {}", name_, one_line(refusal.what()));
  } catch (const ConfigError& error) {
    fail<ConfigError>("the chat template {}, line {}: {}", name_, evaluator.line(), one_line(error.what()));
  }
}

Value value_of(const OrderedJson& json, uint8_t flags, int depth) {
  require<ConfigError>(depth < 100, "the JSON is nested deeper than 100");
  if (json.is_string()) return Text(json.get_ref<const std::string&>(), flags);
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_number_integer() && (!json.is_number_unsigned() || json.get<uint64_t>() <= INT64_MAX))
    return json.get<int64_t>();
  if (json.is_number()) return json.get<double>();
  if (json.is_array()) {
    std::vector<Value> items;
    for (const OrderedJson& each : json) items.push_back(value_of(each, flags, depth + 1));
    return Value::list(std::move(items));
  }
  if (!json.is_object()) return Value::None();
  std::vector<std::pair<Text, Value>> items;
  for (const auto& [key, each] : json.items()) items.emplace_back(Text(key, flags), value_of(each, flags, depth + 1));
  return Value::map(std::move(items));
}

}  // namespace nought::jinja
