#include "nought/data/jinja_value.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include <fmt/ranges.h>
#include <utf8proc.h>

#include "nought/base/error.h"
#include "nought/base/json.h"
#include "nought/data/unicode.h"

namespace nought::jinja {

namespace {

constexpr int kMaxDepth = 100;  // what walks lists in lists recurses

/// Python's repr() of a number: as few digits as tell it from its neighbours.
std::string repr_of(double value) {
  const std::string text = fmt::format("{}", value);
  return text.find_first_of(".en") == text.npos ? text + ".0" : text;
}

int depth_of(const Value& value) { return value.list() ? value.list()->depth : value.map() ? value.map()->depth : 0; }

/// The depth of what holds such a value, if others in it are `depth` deep at most.
int depth_with(int depth, const Value& value) {
  const int inner = depth_of(value);
  require<ConfigError>(inner < kMaxDepth, "lists and mappings are nested deeper than {}", kMaxDepth);
  return std::max(depth, inner + 1);
}

std::string in_quotes(std::string_view text) {
  const bool is_double = text.find('\'') != text.npos && text.find('"') == text.npos;
  const char quote = is_double ? '"' : '\'';
  std::string out(1, quote);
  for (size_t i = 0; i < text.size(); i += utf8_length(text[i])) {
    const auto c = static_cast<utf8proc_int32_t>(first_code_point(text.substr(i)));
    const auto category = utf8proc_category(c);
    if (c == '\n' || c == '\r' || c == '\t') {
      out += c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t";
    } else if (c != ' ' && (category == UTF8PROC_CATEGORY_CN || category >= UTF8PROC_CATEGORY_ZS)) {
      out += c < 0x100     ? fmt::format("\\x{:02x}", c)
             : c < 0x10000 ? fmt::format("\\u{:04x}", c)
                           : fmt::format("\\U{:08x}", c);
    } else {
      if (c == '\\' || c == quote) out += '\\';
      out += text.substr(i, utf8_length(text[i]));
    }
  }
  return out + quote;
}

/// Python's repr().
std::string repr_of(const Value& value, Budget& budget) {
  budget.allocate(8 + (value.text() ? value.text()->size() : 0));
  require<ConfigError>(!value.object(), "{} can not be written as text", value.describe());
  std::vector<std::string> parts;
  if (value.list())
    for (const Value& each : value.list()->items) parts.push_back(repr_of(each, budget));
  if (value.map())
    for (const auto& [key, each] : value.map()->items)
      parts.push_back(in_quotes(key.str()) + ": " + repr_of(each, budget));
  if (value.map()) return fmt::format("{{{}}}", fmt::join(parts, ", "));
  if (value.list() && value.list()->is_tuple)
    return fmt::format("({}{})", fmt::join(parts, ", "), parts.size() == 1 ? "," : "");
  if (value.list()) return fmt::format("[{}]", fmt::join(parts, ", "));
  if (value.text()) return in_quotes(value.text()->str());
  if (value.boolean()) return *value.boolean() ? "True" : "False";
  if (value.integer()) return std::to_string(*value.integer());
  if (value.real()) return repr_of(*value.real());
  return value.is_none() ? "None" : "Undefined";
}

/// bytes: what each value in it takes besides its text.
OrderedJson json_of(const Value& value, size_t bytes, Budget& budget) {
  budget.allocate(bytes + (value.text() ? value.text()->size() : 0));
  const bool is_finite = !value.real() || std::isfinite(*value.real());
  require<ConfigError>(!value.object() && !value.is_undefined() && is_finite, "{} can not be written as JSON",
                       value.describe());
  OrderedJson json;
  if (value.text()) json = value.text()->str();
  if (value.boolean()) json = *value.boolean();
  if (value.integer()) json = *value.integer();
  if (value.real()) json = *value.real();
  if (value.list()) json = OrderedJson::array();
  if (value.list())
    for (const Value& each : value.list()->items) json.push_back(json_of(each, bytes, budget));
  if (value.map()) json = OrderedJson::object();
  if (value.map())
    for (const auto& [key, each] : value.map()->items) json.emplace(key.str(), json_of(each, bytes, budget));
  return json;
}

}  // namespace

Text Text::substr(size_t begin, size_t end) const {
  Text part;
  if (begin >= end) return part;
  part.text_ = text_.substr(begin, end - begin);
  part.flags_ = flags_.substr(begin, end - begin);
  return part;
}

Value Value::undefined(std::string_view name) {
  Value value;
  value.any_ = Undefined{std::make_shared<const std::string>(name)};
  return value;
}

Value Value::list(std::vector<Value> items, bool is_tuple) {
  int depth = 1;
  for (const Value& each : items) depth = depth_with(depth, each);
  Value value;
  value.any_ = std::make_shared<const List>(List{std::move(items), is_tuple, depth});
  return value;
}

Value Value::map(std::vector<std::pair<Text, Value>> items) {
  int depth = 1;
  for (const auto& [key, each] : items) depth = depth_with(depth, each);
  Value value;
  value.any_ = std::make_shared<const Map>(Map{std::move(items), depth});
  return value;
}

bool Value::truth() const {
  if (const auto number = to_real(*this)) return *number != 0;
  if (text()) return !text()->empty();
  if (list()) return !list()->items.empty();
  return map() ? !map()->items.empty() : object() != nullptr;
}

std::string Value::describe() const {
  if (const auto* missing = std::get_if<Undefined>(&any_))
    return missing->name ? fmt::format("\"{}\", which is undefined", *missing->name) : "undefined";
  if (is_none()) return "none";
  if (boolean()) return *boolean() ? "true" : "false";
  if (to_real(*this)) return fmt::format("the number {}", real() ? repr_of(*real()) : std::to_string(*integer()));
  if (text()) {
    const std::string_view begin = std::string_view(text()->str()).substr(0, 40);
    return fmt::format("the string \"{}{}\"", begin.substr(0, valid_utf8_prefix(begin)),
                       begin.size() < text()->size() ? "..." : "");
  }
  if (list()) return list()->is_tuple ? "a tuple" : "a list";
  return map() ? "a mapping" : std::string(object()->what);
}

const Value* Map::find(std::string_view key) const {
  const auto is_key = [&](const auto& each) { return each.first.str() == key; };
  const auto found = std::find_if(items.begin(), items.end(), is_key);
  return found == items.end() ? nullptr : &found->second;
}

Value* find(Variables& variables, std::string_view name) {
  const auto is_name = [&](const auto& each) { return each.first == name; };
  const auto found = std::find_if(variables.begin(), variables.end(), is_name);
  return found == variables.end() ? nullptr : &found->second;
}

void set(Variables& variables, std::string_view name, Value value) {
  if (Value* old = find(variables, name)) return void(*old = std::move(value));
  variables.emplace_back(name, std::move(value));
}

void Budget::step(size_t count) {
  require<ConfigError>(count <= static_cast<size_t>(steps_), "takes too long: its steps are limited");
  steps_ -= static_cast<int64_t>(count);
}

void Budget::allocate(size_t bytes) {
  require<ConfigError>(bytes <= static_cast<size_t>(bytes_), "takes too much memory: what it makes is limited");
  bytes_ -= static_cast<int64_t>(bytes);
  step(bytes / 64);
}

std::optional<int64_t> to_integer(const Value& value) {
  if (value.boolean()) return *value.boolean() ? 1 : 0;
  return value.integer() ? std::optional(*value.integer()) : std::nullopt;
}

std::optional<double> to_real(const Value& value) {
  if (const auto integer = to_integer(value)) return static_cast<double>(*integer);
  return value.real() ? std::optional(*value.real()) : std::nullopt;
}

Text to_text(const Value& value, Budget& budget) {
  if (value.is_undefined()) return Text();
  if (value.text()) budget.allocate(value.text()->size());
  return value.text() ? *value.text() : Text(repr_of(value, budget), value.list() || value.map() ? Text::kData : 0);
}

Text to_json(const Value& value, std::optional<int> indent, bool ascii, bool compact, Budget& budget) {
  const auto replace = OrderedJson::error_handler_t::replace;
  const size_t line = 32 + static_cast<size_t>(indent.value_or(0) * depth_of(value));
  std::string text = json_of(value, line, budget).dump(compact ? -1 : indent.value_or(0), ' ', ascii, replace);
  if (!compact && !indent) {  // line ends stand between values only; those of strings are escaped
    replace_all(text, ",\n", ", ");
    replace_all(text, "\n", "");
  }
  return Text(text, Text::kData);
}

std::vector<Value> elements_of(const Value& value, Budget& budget) {
  std::vector<Value> elements;
  if (value.list()) {
    budget.allocate(value.list()->items.size() * sizeof(Value));
    return value.list()->items;
  }
  if (value.map()) {
    for (const auto& [key, ignored] : value.map()->items) {
      budget.allocate(sizeof(Value) + key.size());
      elements.emplace_back(key);
    }
  } else if (value.text()) {
    const std::vector<size_t> bounds = character_bounds(value, budget);
    budget.allocate(bounds.size() * (sizeof(Value) + sizeof(Text)));
    for (size_t i = 0; i + 1 < bounds.size(); ++i)
      elements.emplace_back(value.text()->substr(bounds[i], bounds[i + 1]));
  } else {
    require<ConfigError>(value.is_undefined(), "{} has no elements", value.describe());
  }
  return elements;
}

std::vector<size_t> character_bounds(const Value& value, Budget& budget) {
  std::vector<size_t> bounds;
  if (!value.text()) return bounds;
  const std::string& text = value.text()->str();
  budget.allocate((text.size() + 1) * sizeof(size_t));
  for (size_t i = 0; i < text.size(); i += utf8_length(text[i])) bounds.push_back(i);
  bounds.push_back(text.size());
  return bounds;
}

size_t find_part(std::string_view text, std::string_view part, size_t from) {
  const void* found = memmem(text.data() + from, text.size() - from, part.data(), part.size());
  return found ? static_cast<size_t>(static_cast<const char*>(found) - text.data()) : text.size();
}

}  // namespace nought::jinja
