#include "nought/data/jinja.h"

#include "nought/base/json.h"
#include "nought/base/text.h"
#include "nought/data/jinja_machine.h"
#include "nought/data/jinja_scanner.h"

namespace nought::jinja {

namespace {

constexpr size_t kMaxSource = size_t{1} << 20;
constexpr int64_t kSteps = 4'000'000, kBytes = int64_t{64} << 20, kBytesPerByte = 256;

size_t bytes_of(const Value& value) {
  size_t bytes = sizeof(Value) + (value.text() ? value.text()->size() : 0);
  if (value.list())
    for (const Value& each : value.list()->items) bytes += bytes_of(each);
  if (value.map())
    for (const auto& [key, each] : value.map()->items) bytes += key.size() + bytes_of(each);
  return bytes;
}

}  // namespace

Machine::Machine(const std::tm& today, Budget limits) : budget(limits), now(today) {}

Machine::~Machine() {
  for (const auto& each : objects) each->attributes.clear();
}

Value Machine::look_up(std::string_view name) {
  for (Scope* scope = innermost; scope; scope = scope->parent) {
    budget.step();
    if (const Value* found = find(scope->names, name)) return *found;
  }
  const Builtin* function = find_builtin(kFunction, name);
  if (!function) return Value::undefined(name);
  return make({"a function", {}, [=](Machine& machine, Arguments given) {
                 return run_builtin(*function, machine, {}, std::move(given));
               }});
}

void Machine::assign(std::string_view name, Value value) {
  budget.allocate(sizeof(Value) + name.size());
  set(innermost->names, name, std::move(value));
}

std::shared_ptr<Object> Machine::make(Object object) {
  budget.allocate(sizeof(Object) + object.attributes.size() * sizeof(object.attributes[0]));
  return objects.emplace_back(std::make_shared<Object>(std::move(object)));
}

void Target::assign(Machine& machine, const Value& value) const {
  if (!attribute.empty()) {
    Object* space = machine.look_up(names[0]).object();
    require<ConfigError>(space && space->what == "a namespace", "\"{}\" is no namespace: its \"{}\" can not be set",
                         names[0], attribute);
    machine.budget.allocate(sizeof(Value) + attribute.size());
    return set(space->attributes, attribute, value);
  }
  if (!unpacks) return machine.assign(names[0], value);
  const std::vector<Value> items = elements_of(value, machine.budget);
  require<ConfigError>(items.size() == names.size(), "{} values for {} names", items.size(), names.size());
  for (size_t i = 0; i < items.size(); ++i) machine.assign(names[i], items[i]);
}

std::vector<std::optional<Value>> bind_arguments(std::string_view name, const std::vector<std::string>& parameters,
                                                 Arguments given) {
  require<ConfigError>(given.positional.size() <= parameters.size(), "\"{}\" takes {} arguments, got {}", name,
                       parameters.size(), given.positional.size());
  std::vector<std::optional<Value>> bound(given.positional.begin(), given.positional.end());
  bound.resize(parameters.size());
  for (auto& [parameter, value] : given.named) {
    const auto at = std::find(parameters.begin(), parameters.end(), parameter);
    require<ConfigError>(at != parameters.end(), "\"{}\" has no argument \"{}\"", name, parameter);
    bound[static_cast<size_t>(at - parameters.begin())] = std::move(value);
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

Text Program::render(Variables variables, const std::tm& now) const {
  size_t bytes = 0;
  for (const auto& [name, value] : variables) bytes += bytes_of(value);
  const auto input = static_cast<int64_t>(bytes);
  Machine machine(now, Budget(kSteps + input, kBytes + kBytesPerByte * input));
  Scope global(machine);
  machine.global = &global;
  global.names = std::move(variables);
  Text out;
  try {
    run_(machine, out);
  } catch (const Refusal& refusal) {
    fail<ConfigError>("the chat template {} refuses the conversation: {}", name_, one_line(refusal.what()));
  } catch (const ConfigError& error) {
    fail<ConfigError>("the chat template {}, line {}: {}", name_, line_of(source_, machine.at), one_line(error.what()));
  }
  return out;
}

Value value_of(const OrderedJson& json, char flags, int depth) {
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
