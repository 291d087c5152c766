#include <algorithm>
#include <cmath>

#include "nought/data/jinja_builtins.h"
#include "nought/data/unicode.h"

namespace nought::jinja {

namespace {

class JsonWriter {
 public:
  JsonWriter(const JsonStyle& style, Budget& budget) : style_(style), budget_(budget) {}

  void write(const Value& value) {
    budget_.allocate(8);
    if (value.text()) return string(*value.text());
    if (value.map()) return map(*value.map());
    if (value.list()) return list(value.list()->items);
    require<ConfigError>(!value.is_undefined() && !value.object(), "{} can not be written as JSON", value.describe());
    const double* real = value.real();
    std::string plain = value.is_none() ? "null" : value.boolean() ? (value.truth() ? "true" : "false") : "";
    if (real)
      plain = std::isnan(*real) ? "NaN" : std::isinf(*real) ? (*real < 0 ? "-Infinity" : "Infinity") : repr_of(*real);
    out_.append(plain.empty() ? to_text(value, budget_).str() : plain, 0);
  }
  Text finish() { return std::move(out_); }

 private:
  void string(const Text& text) {
    budget_.allocate(text.size());
    std::string json = "\"";
    for (size_t i = 0; i < text.size(); i += utf8_length(text.str()[i])) {
      const std::string_view rest = std::string_view(text.str()).substr(i);
      const char32_t c = first_code_point(rest);
      static constexpr std::string_view kShort = "\"\\\n\r\t\b\f", kLetters = "\"\\nrtbf";
      if (const size_t at = c < 0x80 ? kShort.find(static_cast<char>(c)) : kShort.npos; at != kShort.npos) {
        json += '\\';
        json += kLetters[at];
      } else if (c < 0x20 || (style_.ascii && c >= 0x7F && c < 0x10000)) {
        json += c == 0x7F ? "\x7F" : fmt::format("\\u{:04x}", static_cast<uint32_t>(c));
      } else if (style_.ascii && c >= 0x10000) {
        const auto above = static_cast<uint32_t>(c - 0x10000);
        json += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (above >> 10), 0xDC00 + (above & 0x3FF));
      } else {
        json += rest.substr(0, utf8_length(rest[0]));
      }
    }
    out_.append(json + "\"", text.flags());
  }
  void line() {
    if (style_.indent < 0) return;
    budget_.allocate(static_cast<size_t>(style_.indent * level_));
    out_.append("\n" + std::string(static_cast<size_t>(style_.indent * level_), ' '), 0);
  }
  template <class Elements, class Each>
  void container(char open, char close, const Elements& elements, Each each) {
    out_.append(std::string(1, open), 0);
    ++level_;
    for (size_t i = 0; i < elements.size(); ++i) {
      if (i > 0) out_.append(style_.comma, 0);
      line();
      each(elements[i]);
    }
    --level_;
    if (!elements.empty()) line();
    out_.append(std::string(1, close), 0);
  }
  void list(const std::vector<Value>& items) {
    container('[', ']', items, [&](const Value& each) { write(each); });
  }
  void map(const Map& map) {
    auto items = map.items;
    budget_.allocate(items.size() * sizeof(Value));
    if (style_.sorted)
      std::sort(items.begin(), items.end(), [](const auto& a, const auto& b) { return a.first.str() < b.first.str(); });
    container('{', '}', items, [&](const auto& each) {
      string(each.first);
      out_.append(style_.colon, 0);
      write(each.second);
    });
  }

  const JsonStyle& style_;
  Budget& budget_;
  int level_ = 0;
  Text out_;
};

}  // namespace

Text to_json(const Value& value, const JsonStyle& style, Budget& budget) {
  JsonWriter writer(style, budget);
  writer.write(value);
  return writer.finish();
}

}  // namespace nought::jinja
