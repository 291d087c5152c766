#include "nought/chat/jinja_value.h"

#include <algorithm>
#include <array>
#include <compare>

#include <utf8proc.h>

#include "nought/base/error.h"
#include "nought/base/json.h"
#include "nought/text/unicode.h"

namespace nought::jinja {

namespace {

constexpr int kMaxDepth = 100;  // what walks lists in lists recurses

/// Python's repr() of a number: as few digits as tell it from its neighbours.
std::string repr_of(double value) {
  const std::string text = fmt::format("{}", value);
  return text.find_first_of(".en") == text.npos ? text + ".0" : text;
}

/// Python's repr() of a string.
std::string repr_of(const Text& text) {
  const char32_t quote = text.find(U'\'') != text.npos && text.find(U'"') == text.npos ? U'"' : U'\'';
  std::string out(1, static_cast<char>(quote));
  for (const char32_t each : text) {
    const auto c = static_cast<utf8proc_int32_t>(code_point(each));
    const auto category = utf8proc_category(c);
    if (c == '\n' || c == '\r' || c == '\t') {
      out += c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t";
    } else if (c != ' ' && (category == UTF8PROC_CATEGORY_CN || category >= UTF8PROC_CATEGORY_ZS)) {
      out += fmt::format(fmt::runtime(c < 0x100 ? "\\x{:02x}" : c < 0x10000 ? "\\u{:04x}" : "\\U{:08x}"), c);
    } else {
      if (c == '\\' || CharacterTraits::eq(each, quote)) out += '\\';
      append_utf8(out, code_point(each));
    }
  }
  return out + static_cast<char>(quote);
}

/// Writes values as Python's repr(), or as JSON in a style.
class Writer {
 public:
  Writer(const JsonStyle* json, Budget& budget) : json_(json), budget_(budget) {}

  std::string written = {};

  void write(const Value& value, size_t level = 0) {
    const Items* all = value.items();
    if (!all || value.space()) return write_single(value);
    budget_.step();  // what is empty has no single value that would
    const bool is_map = all->kind == Items::kMap, is_tuple = all->kind == Items::kTuple && !json_;
    const std::string_view brackets = is_map ? "{}" : is_tuple ? "()" : "[]";
    written += brackets[0];
    for (size_t i = 0; i < all->values.size(); ++i) {
      if (json_) budget_.step((json_->comma.size() + json_->colon.size()) / 4);
      if (i > 0) written += json_ ? json_->comma : ", ";
      begin_line(level + 1);
      if (is_map) write_single(all->keys[i]);
      if (is_map) written += json_ ? json_->colon : ": ";
      write(all->values[i], level + 1);
    }
    if (is_tuple && all->values.size() == 1) written += ',';
    if (!all->values.empty()) begin_line(level);
    written += brackets[1];
  }

 private:
  void begin_line(size_t level) {
    if (!json_ || !json_->indent) return;
    const size_t width = level * static_cast<size_t>(*json_->indent);
    budget_.step(width / 16);
    (written += '\n').append(width, ' ');
  }
  void write_single(const Value& value) {
    budget_.step(1 + (value.text() ? value.text()->size() : 0));
    if (value.space() || (json_ && value.is_undefined()))
      fail<ConfigError>("{} can not be written as {}", value.describe(), json_ ? "JSON" : "text");
    if (value.text() && json_)
      written += OrderedJson(to_utf8(*value.text())).dump(-1, ' ', json_->ascii, OrderedJson::error_handler_t::replace);
    if (value.text() && !json_) written += repr_of(*value.text());
    if (value.boolean()) written += *value.boolean() ? (json_ ? "true" : "True") : (json_ ? "false" : "False");
    if (value.integer()) written += std::to_string(*value.integer());
    if (value.real()) written += repr_of(*value.real());
    if (value.is_none()) written += json_ ? "null" : "None";
    if (value.is_undefined()) written += "Undefined";
  }

  const JsonStyle* json_;
  Budget& budget_;
};

Value of_integers(std::string_view sign, int64_t a, int64_t b) {
  int64_t result = 0;
  bool fits = true;
  if (sign == "+") fits = !__builtin_add_overflow(a, b, &result);
  if (sign == "-") fits = !__builtin_sub_overflow(a, b, &result);
  if (sign == "*") fits = !__builtin_mul_overflow(a, b, &result);
  if (sign == "%") {
    require<ConfigError>(b != 0, "{} % 0 divides by zero", a);
    result = b == -1 ? 0 : a % b;
    if (result != 0 && (result < 0) != (b < 0)) result += b;  // it has the sign of b in Python
  }
  require<ConfigError>(fits, "{} {} {} has more than 64 bits", a, sign, b);
  return result;
}

/// The order of two numbers, or of two strings; nothing for others.
std::optional<std::partial_ordering> order_of(const Value& a, const Value& b, Budget& budget) {
  budget.step();
  const auto i = to_integer(a), j = to_integer(b);
  if (i && j) return *i <=> *j;
  const auto x = to_real(a), y = to_real(b);
  if (x && y) return *x <=> *y;
  if (!a.text() || !b.text()) return std::nullopt;
  budget.step(std::min(a.text()->size(), b.text()->size()) / 16);
  return a.text()->compare(*b.text()) <=> 0;
}

bool equal(const Value& a, const Value& b, Budget& budget) {
  if (const auto order = order_of(a, b, budget)) return *order == 0;
  const Items *left = a.items(), *right = b.items();
  if (!left || !right) return a.type() == b.type() && !a.real();  // none and undefined; NaN is not equal to itself
  if (left == right || left->kind != right->kind || left->values.size() != right->values.size()) return left == right;
  for (size_t i = 0; i < left->values.size(); ++i) {
    if (!a.list()) budget.look_up(*right, *left->keys[i].text());
    const Value* other = !a.list() ? right->find(*left->keys[i].text()) : &right->values[i];
    if (!other || !equal(left->values[i], *other, budget)) return false;
  }
  return true;
}

bool contains(const Value& in, const Value& what, Budget& budget) {
  if (in.text()) {
    if (!what.text()) fail<ConfigError>("a string can not contain {}", what.describe());
    budget.search(*in.text(), *what.text());
    return in.text()->find(*what.text()) != Text::npos;
  }
  if (in.map() && what.text()) budget.look_up(*in.map(), *what.text());
  if (in.map()) return what.text() && in.map()->find(*what.text());
  const std::vector<Value> items = elements_of(in, budget);
  return std::any_of(items.begin(), items.end(), [&](const Value& each) { return equal(each, what, budget); });
}

}  // namespace

int CharacterTraits::compare(const char32_t* a, const char32_t* b, size_t count) {
  const auto [x, y] = std::mismatch(a, a + count, b, eq);
  return x == a + count ? 0 : lt(*x, *y) ? -1 : 1;
}

const char32_t* CharacterTraits::find(const char32_t* text, size_t count, const char32_t& wanted) {
  constexpr size_t kBlock = 32;  // compared at once
  const char32_t *end = text + count, c = code_point(wanted);
  const auto is_wanted = [&](char32_t each) { return code_point(each) == c; };
  for (; static_cast<size_t>(end - text) >= kBlock; text += kBlock) {
    uint32_t found = 0;
    for (size_t i = 0; i < kBlock; ++i) found |= is_wanted(text[i]) ? 1 : 0;
    if (found) break;
  }
  text = std::find_if(text, end, is_wanted);
  return text == end ? nullptr : text;
}

Text from_utf8(std::string_view utf8, char32_t flags) {
  Text text;
  text.reserve(utf8.size());
  for (size_t i = 0; i < utf8.size(); i += utf8_length(utf8[i])) text += first_code_point(utf8.substr(i)) | flags;
  return text;
}

std::string to_utf8(const Text& text) {
  std::string utf8;
  utf8.reserve(text.size());
  for (const char32_t each : text) append_utf8(utf8, code_point(each));
  return utf8;
}

Text Rendered::text() const {
  Text text;
  for (size_t i = 0; i < size(); i += utf8_length(text_[i]))
    text += first_code_point(std::string_view(text_).substr(i)) | flags(i);
  return text;
}

void Rendered::write(const Text& text, char32_t more_flags) {
  for (size_t i = 0; i < text.size();) {
    // ASCII of the same flags is written at once.
    const char32_t flags = text[i] - code_point(text[i]);
    size_t end = i;
    while (end < text.size() && text[end] - flags < 0x80) ++end;
    const size_t begin = text_.size();
    text_.resize(begin + end - i);
    std::transform(&text[i], text.data() + end, &text_[begin], [](char32_t each) { return static_cast<char>(each); });
    if (end == i) append_utf8(text_, code_point(text[end++]));
    flags_.resize(text_.size(), static_cast<char>((flags | more_flags) >> 24));
    i = end;
  }
}

Value::Value(Items items) {
  for (const Value& each : items.values) {
    const int inner = each.items() ? each.items()->depth : 0;
    require<ConfigError>(inner < kMaxDepth, "lists and mappings are nested deeper than {}", kMaxDepth);
    require<ConfigError>(!each.space(), "a namespace within a list, a mapping or a namespace is not supported");
    items.depth = std::max(items.depth, inner + 1);
  }
  any_ = std::make_shared<Items>(std::move(items));
}

Value Value::undefined(std::string_view name) {
  Value value;
  value.any_ = Undefined{std::make_shared<const std::string>(name)};
  return value;
}

Value Value::list(std::vector<Value> values, bool is_tuple) {
  return Items{.kind = is_tuple ? Items::kTuple : Items::kList, .values = std::move(values)};
}

std::string_view Value::type() const {
  static constexpr std::array kTypes{"undefined", "none", "boolean", "integer", "float", "string"};  // as any_ has them
  static constexpr std::array kKinds{"list", "tuple", "mapping", "namespace"};                       // as Items::Kind
  return items() ? kKinds[items()->kind] : kTypes[any_.index()];
}

const Text* Value::text() const {
  const auto* text = std::get_if<std::shared_ptr<Text>>(&any_);
  return text ? text->get() : nullptr;
}

Text Value::taken_text() && {
  auto& shared = std::get<std::shared_ptr<Text>>(any_);
  return shared.use_count() == 1 ? std::move(*shared) : *shared;
}

const Items* Value::items() const {
  const auto* items = std::get_if<std::shared_ptr<Items>>(&any_);
  return items ? items->get() : nullptr;
}

const Items* Value::list() const { return items() && items()->kind <= Items::kTuple ? items() : nullptr; }
const Items* Value::map() const { return items() && items()->kind == Items::kMap ? items() : nullptr; }

Items* Value::space() const {
  return items() && items()->kind == Items::kSpace ? std::get<std::shared_ptr<Items>>(any_).get() : nullptr;
}

bool Value::truth() const {
  if (const auto number = to_real(*this)) return *number != 0;
  return text() ? !text()->empty() : items() && (space() || !items()->values.empty());
}

std::string Value::describe() const {
  if (const auto* missing = std::get_if<Undefined>(&any_))
    return missing->name ? fmt::format("\"{}\", which is undefined", *missing->name) : "undefined";
  if (boolean()) return *boolean() ? "true" : "false";
  if (to_real(*this)) return fmt::format("the number {}", real() ? repr_of(*real()) : std::to_string(*integer()));
  if (!text()) return is_none() ? "none" : fmt::format("a {}", type());
  return fmt::format("the string \"{}{}\"", to_utf8(text()->substr(0, 40)), text()->size() > 40 ? "..." : "");
}

Value* Items::find(const Text& key) {
  const auto found = std::find_if(keys.begin(), keys.end(), [&](const Value& each) { return *each.text() == key; });
  return found == keys.end() ? nullptr : &values[static_cast<size_t>(found - keys.begin())];
}

void Items::set(const Value& key, const Value& value) {
  if (Value* old = find(*key.text())) return void(*old = value);
  keys.push_back(key);
  values.push_back(value);
}

void Budget::step(size_t count) {
  require<ConfigError>(count <= steps_,
                       "takes too much time or memory: more than {} steps (a million, and 4 for each byte that it is "
                       "given): simplify it, "
                       "or name another one",
                       limit_);
  steps_ -= count;
}

void Budget::look_up(const Items& in, const Text& key) { step(1 + in.keys.size() * (1 + key.size() / 4) / 8); }

std::optional<int64_t> to_integer(const Value& value) {
  if (value.boolean()) return *value.boolean() ? 1 : 0;
  return value.integer() ? std::optional(*value.integer()) : std::nullopt;
}

std::optional<double> to_real(const Value& value) {
  if (const auto integer = to_integer(value)) return static_cast<double>(*integer);
  return value.real() ? std::optional(*value.real()) : std::nullopt;
}

Value binary(std::string_view sign, Value a, const Value& b, Budget& budget) {
  if (sign == "in" || sign == "not in") return contains(b, a, budget) == (sign == "in");
  if (sign == "==" || sign == "!=") return equal(a, b, budget) == (sign == "==");
  if (sign[0] == '<' || sign[0] == '>') {
    const auto order = order_of(a, b, budget);
    if (!order) fail<ConfigError>("can not tell which is less: {} or {}", a.describe(), b.describe());
    return sign == "<" ? *order < 0 : sign == "<=" ? *order <= 0 : sign == ">" ? *order > 0 : *order >= 0;
  }
  if (sign == "~" || (sign == "+" && a.text() && b.text())) {
    Text joined = a.text() ? std::move(a).taken_text() : to_text(a, budget);
    budget.touch(joined);
    if (b.text()) budget.touch(*b.text());
    return b.text() ? Value(std::move(joined.append(*b.text()))) : std::move(joined.append(to_text(b, budget)));
  }
  const auto i = to_integer(a), j = to_integer(b);
  if (i && j) return of_integers(sign, *i, *j);
  if (sign == "+" && a.list() && b.list() && a.type() == b.type()) {
    std::vector<Value> items = elements_of(a, budget);
    const std::vector<Value> more = elements_of(b, budget);
    items.insert(items.end(), more.begin(), more.end());
    return Value::list(std::move(items), a.type() == "tuple");
  }
  fail<ConfigError>("there is no {} {} {}", a.describe(), sign, b.describe());
}

Text to_text(const Value& value, Budget& budget) {
  if (value.text()) budget.touch(*value.text());
  if (value.text()) return *value.text();
  if (value.is_undefined()) return Text();
  Writer writer(nullptr, budget);
  writer.write(value);
  return from_utf8(writer.written, value.items() ? char32_t{kData} : 0);
}

Text to_json(const Value& value, const JsonStyle& style, Budget& budget) {
  Writer writer(&style, budget);
  writer.write(value);
  return from_utf8(writer.written, kData);
}

std::vector<Value> elements_of(const Value& value, Budget& budget) {
  std::vector<Value> elements;
  if (value.list() || value.map()) {
    elements = value.map() ? value.map()->keys : value.list()->values;
  } else {
    if (!value.text() && !value.is_undefined()) fail<ConfigError>("{} has no elements", value.describe());
    budget.step(value.text() ? 16 * value.text()->size() : 0);  // each is an allocation
    for (const char32_t each : value.text() ? *value.text() : Text()) elements.emplace_back(Text(1, each));
  }
  budget.step(2 * elements.size());
  return elements;
}

Value item_of(const Value& value, const Value& key, Budget& budget) {
  if (value.is_undefined()) fail<ConfigError>("can not look up {} in {}", key.describe(), value.describe());
  if (key.text() && value.items() && !value.list()) {
    budget.look_up(*value.items(), *key.text());
    if (const Value* found = value.items()->find(*key.text())) return *found;
  }
  if (const auto index = to_integer(key); index && (value.text() || value.list())) {
    const auto size = static_cast<int64_t>(value.text() ? value.text()->size() : value.list()->values.size());
    const auto place = static_cast<size_t>(*index < 0 ? *index + size : *index);
    if (*index >= -size && *index < size)
      return value.list() ? value.list()->values[place] : Text(1, (*value.text())[place]);
  }
  if (key.text()) budget.touch(*key.text());
  return Value::undefined(key.text() ? to_utf8(*key.text()) : "an element");
}

Value slice_of(const Value& value, const Value& begin, const Value& end, const Value& step, Budget& budget) {
  if (!value.text() && !value.list()) fail<ConfigError>("{} has no slices", value.describe());
  const auto size = static_cast<int64_t>(value.text() ? value.text()->size() : value.list()->values.size());
  const auto number = [](const Value& given, int64_t fallback) {
    const auto integer = to_integer(given);
    if (!integer && !given.is_undefined() && !given.is_none()) fail<ConfigError>("a slice has {}", given.describe());
    return integer.value_or(fallback);
  };
  const int64_t by = std::clamp<int64_t>(number(step, 1), -size - 1, size + 1);
  require<ConfigError>(by != 0, "a slice's step is 0");
  const int64_t least = by < 0 ? -1 : 0, most = by < 0 ? size - 1 : size;
  const auto edge = [&](const Value& given, int64_t fallback) {
    const int64_t at = number(given, fallback);
    return std::clamp(at < 0 && to_integer(given) ? at + size : at, least, most);
  };
  const int64_t first = edge(begin, by < 0 ? most : least), last = edge(end, by < 0 ? least : most);
  Text text;
  std::vector<Value> items;
  for (int64_t i = first; by < 0 ? i > last : i < last; i += by) {
    if (value.text()) text += (*value.text())[static_cast<size_t>(i)];
    if (value.list()) items.push_back(value.list()->values[static_cast<size_t>(i)]);
  }
  budget.step(text.size() / 4 + 2 * items.size());
  return value.text() ? Value(std::move(text)) : Value::list(std::move(items), value.type() == "tuple");
}

}  // namespace nought::jinja
