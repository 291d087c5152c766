#include "nought/config/yaml.h"

#include <charconv>
#include <cmath>
#include <memory>
#include <string>
#include <utility>

#include <yaml.h>

#include "nought/base/error.h"
#include "nought/base/json.h"
#include "nought/base/text.h"

namespace nought {

namespace {

constexpr int kDeepest = 32;  // levels of a config are few; the bound keeps hostile files off the stack

template <class T>
bool read_number(std::string_view text, T& number) {
  if (text.starts_with('+')) text.remove_prefix(1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

class YamlReader {
 public:
  YamlReader(std::string_view text, std::string_view name, std::map<std::string, size_t>* lines)
      : name_(name), lines_(lines) {
    require<ConfigError>(yaml_parser_initialize(&parser_) == 1, "{}: out of memory", name_);
    yaml_parser_set_input_string(&parser_, reinterpret_cast<const unsigned char*>(text.data()), text.size());
  }
  ~YamlReader() {
    yaml_event_delete(&event_);
    yaml_parser_delete(&parser_);
  }
  YamlReader(const YamlReader&) = delete;
  YamlReader& operator=(const YamlReader&) = delete;

  Json document() {
    next();  // the start of the stream
    next();
    if (event_.type == YAML_STREAM_END_EVENT) return nullptr;
    next();
    Json json = value("", 0);
    next();  // the end of the document
    next();
    if (event_.type != YAML_STREAM_END_EVENT) refuse("a second document");
    return json;
  }

 private:
  void next() {
    yaml_event_delete(&event_);
    if (yaml_parser_parse(&parser_, &event_) == 1) return;
    fail<ConfigError>("{}:{}: {}", name_, parser_.problem_mark.line + 1,
                      parser_.problem != nullptr ? parser_.problem : "not valid YAML");
  }

  [[noreturn]] void refuse(std::string_view what) const {
    fail<ConfigError>("{}:{}: {} is not read; expected one document of maps, lists and scalars", name_,
                      event_.start_mark.line + 1, what);
  }

  /// The value that begins at the present event; leaves its last event as the present one.
  Json value(const std::string& path, int depth) {
    if (depth > kDeepest) refuse("a value this deep");
    switch (event_.type) {
      case YAML_SCALAR_EVENT:
        return scalar();
      case YAML_SEQUENCE_START_EVENT:
        return list(path, depth);
      case YAML_MAPPING_START_EVENT:
        return map(path, depth);
      case YAML_ALIAS_EVENT:
        refuse("an alias");
      default:
        refuse("this");
    }
  }

  std::string text() const {
    const auto& scalar = event_.data.scalar;
    return {reinterpret_cast<const char*>(scalar.value), scalar.length};
  }

  Json scalar() const {
    const auto& scalar = event_.data.scalar;
    if (scalar.tag != nullptr) refuse("a tag");
    return scalar.style == YAML_PLAIN_SCALAR_STYLE ? yaml_scalar(text()) : Json(text());
  }

  Json list(const std::string& path, int depth) {
    Json json = Json::array();
    for (next(); event_.type != YAML_SEQUENCE_END_EVENT; next())
      json.push_back(value(fmt::format("{}[{}]", path, json.size()), depth + 1));
    return json;
  }

  Json map(const std::string& path, int depth) {
    Json json = Json::object();
    for (next(); event_.type != YAML_MAPPING_END_EVENT; next()) {
      if (event_.type != YAML_SCALAR_EVENT) refuse("a key that is no scalar");
      const std::string key = text();
      const size_t line = event_.start_mark.line + 1;
      next();
      require<ConfigError>(!json.contains(key), "{}:{}: {}: the key is given twice", name_, line, key);
      const std::string at = join_path(path, key);
      if (lines_ != nullptr) (*lines_)[at] = line;
      json[key] = value(at, depth + 1);
    }
    return json;
  }

  std::string_view name_;
  std::map<std::string, size_t>* lines_;
  yaml_parser_t parser_{};
  yaml_event_t event_{};
};

}  // namespace

Json yaml_scalar(const std::string& text) {
  const std::string lower = lower_case(text);
  if (lower.empty() || lower == "~" || lower == "null") return nullptr;
  if (lower == "true" || lower == "yes" || lower == "on") return true;
  if (lower == "false" || lower == "no" || lower == "off") return false;
  if (lower == ".inf" || lower == "+.inf") return kJsonInfinity;
  if (int64_t whole = 0; read_number(text, whole)) return whole;
  if (double number = 0; read_number(text, number) && std::isfinite(number)) return number;
  return text;
}

Json parse_yaml(std::string_view text, std::string_view name, std::map<std::string, size_t>* lines) {
  return YamlReader(text, name, lines).document();
}

}  // namespace nought
