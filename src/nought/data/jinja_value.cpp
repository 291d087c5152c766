#include "nought/data/jinja_value.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "nought/base/error.h"
#include "nought/data/unicode.h"

namespace nought::jinja {

namespace {

constexpr int kMaxDepth = 100;  // what walks lists in lists recurses

int checked_depth(int deepest) {
  require<ConfigError>(deepest < kMaxDepth, "lists and mappings are nested deeper than {}", kMaxDepth);
  return deepest + 1;
}

int depth_of(const Value& value) {
  if (value.list()) return value.list()->depth;
  return value.map() ? value.map()->depth : value.object() ? value.object()->depth() : 0;
}

}  // namespace

uint8_t Text::flags() const {
  uint8_t all = 0;
  for (const Stretch& each : stretches_) all |= each.flags;
  return all;
}

void Text::append(std::string_view text, uint8_t flags) {
  if (text.empty()) return;
  text_ += text;
  if (!stretches_.empty() && stretches_.back().flags == flags) {
    stretches_.back().end = text_.size();
  } else {
    stretches_.push_back({text_.size(), flags});
  }
}

void Text::append(const Text& other) {
  size_t begin = 0;
  for (const Stretch& each : other.stretches_) {
    append(std::string_view(other.text_).substr(begin, each.end - begin), each.flags);
    begin = each.end;
  }
}

Text Text::substr(size_t begin, size_t end) const {
  Text part;
  if (begin >= end) return part;
  const auto behind = [](size_t at, const Stretch& each) { return at < each.end; };
  auto stretch = std::upper_bound(stretches_.begin(), stretches_.end(), begin, behind);
  for (; begin < end; ++stretch) {
    const size_t stop = std::min(end, stretch->end);
    part.append(std::string_view(text_).substr(begin, stop - begin), stretch->flags);
    begin = stop;
  }
  return part;
}

Text Text::with(Flag flag) const {
  Text result = *this;
  for (Stretch& each : result.stretches_) each.flags |= flag;
  return result;
}

Value Value::undefined(std::string_view name) {
  Value value;
  value.any_ = Undefined{std::make_shared<const std::string>(name)};
  return value;
}

Value Value::list(std::vector<Value> items, bool is_tuple) {
  int deepest = 0;
  for (const Value& each : items) deepest = std::max(deepest, depth_of(each));
  Value value;
  value.any_ = std::make_shared<const List>(List{std::move(items), is_tuple, checked_depth(deepest)});
  return value;
}

Value Value::map(std::vector<std::pair<Text, Value>> items) {
  int deepest = 0;
  for (const auto& [key, each] : items) deepest = std::max(deepest, depth_of(each));
  Value value;
  value.any_ = std::make_shared<const Map>(Map{std::move(items), checked_depth(deepest)});
  return value;
}

bool Value::truth() const {
  if (const bool* value = boolean()) return *value;
  if (const int64_t* value = integer()) return *value != 0;
  if (const double* value = real()) return *value != 0;
  if (const Text* value = text()) return !value->empty();
  if (const List* value = list()) return !value->items.empty();
  if (const Map* value = map()) return !value->items.empty();
  return object() != nullptr;
}

std::string Value::describe() const {
  if (const auto* missing = std::get_if<Undefined>(&any_))
    return missing->name ? fmt::format("\"{}\", which is undefined", *missing->name) : "undefined";
  if (is_none()) return "none";
  if (const bool* value = boolean()) return *value ? "true" : "false";
  if (const int64_t* value = integer()) return fmt::format("the number {}", *value);
  if (const double* value = real()) return "the number " + repr_of(*value);
  if (const Text* value = text()) {
    const bool whole = value->size() <= 40;
    return fmt::format("the string \"{}{}\"", value->str().substr(0, valid_utf8_prefix(value->str().substr(0, 40))),
                       whole ? "" : "...");
  }
  if (list()) return list()->is_tuple ? "a tuple" : "a list";
  return map() ? "a mapping" : std::string(object()->what());
}

const Value* Map::find(std::string_view key) const {
  const auto found =
      std::find_if(items.begin(), items.end(), [&](const auto& each) { return each.first.str() == key; });
  return found == items.end() ? nullptr : &found->second;
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

bool to_integer(const Value& value, int64_t& out) {
  if (value.integer()) out = *value.integer();
  if (value.boolean()) out = *value.boolean() ? 1 : 0;
  return value.integer() || value.boolean();
}

bool to_real(const Value& value, double& out) {
  int64_t integer = 0;
  if (to_integer(value, integer)) {
    out = static_cast<double>(integer);
    return true;
  }
  if (value.real()) out = *value.real();
  return value.real() != nullptr;
}

bool equal(const Value& a, const Value& b, Budget& budget) {
  budget.step();
  int64_t i = 0, j = 0;
  if (to_integer(a, i) && to_integer(b, j)) return i == j;
  double x = 0, y = 0;
  if (to_real(a, x) && to_real(b, y)) return x == y;
  if (a.text() && b.text()) {
    budget.step(std::min(a.text()->size(), b.text()->size()) / 64);
    return a.text()->str() == b.text()->str();
  }
  if (a.list() && b.list()) {
    const List &left = *a.list(), &right = *b.list();
    return left.is_tuple == right.is_tuple && left.items.size() == right.items.size() &&
           std::equal(left.items.begin(), left.items.end(), right.items.begin(),
                      [&](const Value& l, const Value& r) { return equal(l, r, budget); });
  }
  if (a.map() && b.map()) {
    const Map &left = *a.map(), &right = *b.map();
    budget.step(left.items.size() * right.items.size() / 8);
    return left.items.size() == right.items.size() &&
           std::all_of(left.items.begin(), left.items.end(), [&](const auto& each) {
             const Value* other = right.find(each.first.str());
             return other && equal(each.second, *other, budget);
           });
  }
  return (a.is_none() && b.is_none()) || (a.is_undefined() && b.is_undefined()) || a.same_object(b);
}

int compare(const Value& a, const Value& b, Budget& budget) {
  budget.step();
  const auto order = [](const auto& x, const auto& y) { return x < y ? -1 : y < x ? 1 : 0; };
  int64_t i = 0, j = 0;
  if (to_integer(a, i) && to_integer(b, j)) return order(i, j);
  double x = 0, y = 0;
  if (to_real(a, x) && to_real(b, y)) return order(x, y);
  if (a.text() && b.text()) {
    budget.step(std::min(a.text()->size(), b.text()->size()) / 64);
    return order(a.text()->str(), b.text()->str());  // the order of UTF-8 is that of its code points
  }
  require<ConfigError>(a.list() && b.list(), "can not tell which is less: {} or {}", a.describe(), b.describe());
  const auto &left = a.list()->items, &right = b.list()->items;
  for (size_t k = 0; k < std::min(left.size(), right.size()); ++k)
    if (!equal(left[k], right[k], budget)) return compare(left[k], right[k], budget);
  return order(left.size(), right.size());
}

std::string repr_of(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[40];
  const auto [end, ignored] = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific);
  const std::string shortest(buffer, end);  // "-1.25e+02": as few digits as tell it from its neighbours
  const size_t mark = shortest.find('e');
  const int exponent = std::stoi(shortest.substr(mark + 1));
  if (exponent < -4 || exponent >= 16) return shortest;
  const auto digits = static_cast<int>(std::count_if(shortest.begin(), shortest.begin() + static_cast<long>(mark),
                                                     [](char c) { return c >= '0' && c <= '9'; }));
  return fmt::format("{:.{}f}", value, std::max(1, digits - 1 - exponent));
}

namespace {

void append_repr(Text& out, const Text& text, Budget& budget) {
  budget.allocate(text.size());
  const bool has_single = text.str().find('\'') != std::string::npos;
  const char quote = has_single && text.str().find('"') == std::string::npos ? '"' : '\'';
  out.append(std::string_view(&quote, 1), 0);
  std::string escaped;
  for (size_t i = 0; i < text.size(); i += utf8_length(text.str()[i])) {
    const std::string_view rest = std::string_view(text.str()).substr(i);
    const char32_t c = first_code_point(rest);
    if (c == '\n' || c == '\r' || c == '\t') {
      escaped += c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t";
    } else if (c < 0x20 || (c >= 0x7F && c <= 0xA0) || c == 0xAD) {
      escaped += fmt::format("\\x{:02x}", static_cast<uint32_t>(c));
    } else {
      if (c == '\\' || c == static_cast<char32_t>(quote)) escaped += '\\';
      escaped += rest.substr(0, utf8_length(rest[0]));
    }
  }
  out.append(escaped, text.flags());
  out.append(std::string_view(&quote, 1), 0);
}

void append_value(Text& out, const Value& value, bool quoted, Budget& budget);

/// {'key': value}
void append_map(Text& out, const Map& map, Budget& budget) {
  out.append("{", 0);
  for (size_t i = 0; i < map.items.size(); ++i) {
    if (i > 0) out.append(", ", 0);
    append_repr(out, map.items[i].first, budget);
    out.append(": ", 0);
    append_value(out, map.items[i].second, true, budget);
  }
  out.append("}", 0);
}

void append_list(Text& out, const List& list, Budget& budget) {
  out.append(list.is_tuple ? "(" : "[", 0);
  for (size_t i = 0; i < list.items.size(); ++i) {
    if (i > 0) out.append(", ", 0);
    append_value(out, list.items[i], true, budget);
  }
  if (list.is_tuple) out.append(list.items.size() == 1 ? ",)" : ")", 0);
  if (!list.is_tuple) out.append("]", 0);
}

void append_value(Text& out, const Value& value, bool quoted, Budget& budget) {
  budget.allocate(8);
  if (const Text* text = value.text()) {
    if (quoted) return append_repr(out, *text, budget);
    budget.allocate(text->size());
    return out.append(*text);
  }
  if (value.map()) return append_map(out, *value.map(), budget);
  if (value.list()) return append_list(out, *value.list(), budget);
  if (value.is_undefined()) return out.append(quoted ? "Undefined" : "", 0);
  require<ConfigError>(!value.object(), "{} can not be written as text", value.describe());
  const std::string plain = value.is_none()   ? "None"
                            : value.boolean() ? (*value.boolean() ? "True" : "False")
                            : value.integer() ? fmt::format("{}", *value.integer())
                                              : repr_of(*value.real());
  out.append(plain, 0);
}

}  // namespace

Text to_text(const Value& value, Budget& budget) {
  if (const Text* text = value.text()) {
    budget.allocate(text->size());
    return *text;
  }
  Text out;
  append_value(out, value, false, budget);
  return out;
}

std::vector<Value> elements_of(const Value& value, Budget& budget) {
  std::vector<Value> elements;
  if (const List* list = value.list()) {
    budget.allocate(list->items.size() * sizeof(Value));
    return list->items;
  }
  if (const Map* map = value.map()) {
    for (const auto& [key, ignored] : map->items) {
      budget.allocate(sizeof(Value) + key.size());
      elements.emplace_back(key);
    }
  } else if (value.text()) {
    const Characters characters(*value.text(), budget);
    budget.allocate(characters.size() * (sizeof(Value) + sizeof(Text) + 32));
    for (size_t i = 0; i < characters.size(); ++i) elements.emplace_back(characters.at(i));
  } else {
    require<ConfigError>(value.is_undefined(), "{} has no elements", value.describe());
  }
  return elements;
}

Characters::Characters(const Text& text, Budget& budget) : text_(text) {
  budget.allocate(text.size() * sizeof(size_t));
  starts_.reserve(text.size() + 1);
  for (size_t i = 0; i < text.size(); i += utf8_length(text.str()[i])) starts_.push_back(i);
  starts_.push_back(text.size());
}

size_t Characters::number_of(size_t byte) const {
  return static_cast<size_t>(std::lower_bound(starts_.begin(), starts_.end(), byte) - starts_.begin());
}

}  // namespace nought::jinja
