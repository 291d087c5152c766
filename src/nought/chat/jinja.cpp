#include "nought/chat/jinja.h"

#include "nought/base/json.h"
#include "nought/base/text.h"
#include "nought/chat/jinja_machine.h"
#include "nought/chat/jinja_scanner.h"

namespace nought::jinja {

namespace {

constexpr size_t kMaxSource = size_t{1} << 20;
constexpr size_t kSteps = 1'000'000, kStepsPerByte = 4;  // as the message of Budget::step() says

size_t bytes_of(const Value& value) {
  size_t bytes = sizeof(Value) + (value.text() ? value.text()->size() : 0);
  if (!value.items()) return bytes;
  for (const Value& each : value.items()->keys) bytes += bytes_of(each);
  for (const Value& each : value.items()->values) bytes += bytes_of(each);
  return bytes;
}

}  // namespace

Value Machine::look_up(const Text& name) {
  for (const Scope* scope = innermost; scope; scope = scope->outside) {
    budget.look_up(scope->names, name);
    if (const Value* found = scope->names.find(name)) return *found;
  }
  budget.touch(name);
  // A function that is not called can be asked for, as in "if strftime_now is defined".
  const std::string utf8 = to_utf8(name);
  return find_builtin(kFunction, utf8) ? Items{.kind = Items::kSpace} : Value::undefined(utf8);
}

void Machine::assign(Items& to, const Value& name, const Value& value) {
  budget.look_up(to, *name.text());
  require<ConfigError>(to.kind != Items::kSpace || !value.space(), "a namespace within a namespace is not supported");
  to.set(name, value);
}

std::vector<const Value*> bind_arguments(std::string_view name, const std::vector<Value>& parameters,
                                         const Items& given, Budget& budget) {
  std::vector<const Value*> bound(parameters.size());
  for (size_t i = 0; i < given.values.size(); ++i) {
    const Text* key = given.keys[i].text();
    if (key) budget.step(1 + parameters.size() * (1 + key->size() / 4) / 8);
    const auto is_key = [&](const Value& each) { return *each.text() == *key; };
    const auto at =
        key ? std::find_if(parameters.begin(), parameters.end(), is_key) - parameters.begin() : std::ssize(bound);
    require<ConfigError>(key || i < bound.size(), "\"{}\" takes {} arguments, got {}", name, bound.size(),
                         given.values.size());
    require<ConfigError>(!key || at < std::ssize(bound), "\"{}\" has no argument \"{}\"", name,
                         key ? to_utf8(*key) : "");
    bound[key ? static_cast<size_t>(at) : i] = &given.values[i];
  }
  return bound;
}

Program::Program(std::string name, std::string_view source) : name_(std::move(name)), source_(source) {
  // One kind of line end, and none at the very end.
  replace_all(source_, "\r\n", "\n");
  std::replace(source_.begin(), source_.end(), '\r', '\n');
  if (source_.ends_with('\n')) source_.pop_back();
  try {
    require<ConfigError>(source.size() <= kMaxSource, "has {} bytes, more than {}", source.size(), kMaxSource);
    require<ConfigError>(is_valid_utf8(source), "is no UTF-8");
    run_ = parse(source_, marks_targets_);
  } catch (const ConfigError& error) {
    fail<ConfigError>("the chat template {}: {}", name_, one_line(error.what()));
  }
}

Rendered Program::render(const Value& variables, const std::tm& now) const {
  Scope global{.outside = nullptr, .names = *variables.map()};
  Rendered out;
  Machine machine{
      .budget = Budget(kSteps + kStepsPerByte * bytes_of(variables)), .now = now, .global = &global, .out = &out};
  try {
    run_(machine);
  } catch (const ConfigError& error) {
    const std::string why = one_line(error.what());
    require<ConfigError>(!machine.refuses, "the chat template {} refuses the conversation: {}", name_, why);
    fail<ConfigError>("the chat template {}, line {}: {}", name_, line_of(source_, machine.at), why);
  }
  return out;
}

Value value_of(const OrderedJson& json, char32_t flags, int depth) {
  require<ConfigError>(depth < 100, "the JSON is nested deeper than 100");
  if (json.is_string()) return from_utf8(json.get_ref<const std::string&>(), flags);
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_number_integer() && (!json.is_number_unsigned() || json.get<uint64_t>() <= INT64_MAX))
    return json.get<int64_t>();
  if (json.is_number()) return json.get<double>();
  if (!json.is_structured()) return Value::None();
  Items items{.kind = json.is_array() ? Items::kList : Items::kMap};
  for (const auto& [key, each] : json.items()) {
    if (json.is_object()) items.keys.emplace_back(from_utf8(key, flags));
    items.values.push_back(value_of(each, flags, depth + 1));
  }
  return items;
}

}  // namespace nought::jinja
