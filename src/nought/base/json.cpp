#include "nought/base/json.h"

#include <algorithm>
#include <optional>
#include <set>
#include <vector>

#include <fmt/core.h>

#include "nought/base/error.h"
#include "nought/base/open_file.h"
#include "nought/base/text.h"
#include "nought/base/utf8.h"

namespace nought {

namespace {

/// Overwrites comments and trailing commas with blanks, so that lines and columns stay true.
class Blanker {
 public:
  explicit Blanker(std::string_view text) : text_(text) {}

  std::string run() {
    while (at_ < text_.size()) step();
    return std::move(text_);
  }

 private:
  void step() {
    const char c = text_[at_];
    if (c == '"') return skip_string();
    if (c == '#' || starts_with("//")) return blank_until("\n", 0);
    if (starts_with("/*")) return blank_until("*/", 2);
    if (starts_with("Infinity")) return replace_infinity();
    if (c == ',' && follows_value_) {
      comma_ = at_;
    } else if ((c == '}' || c == ']') && comma_ != std::string::npos) {
      text_[comma_] = ' ';
    }
    if (!is_space(c)) see(c);
    ++at_;
  }

  /// Only a comma between a value and a closing bracket is a trailing one: "[,]" stays an error.
  void see(char c) {
    follows_value_ = std::string_view("[{:,").find(c) == std::string_view::npos;
    if (c != ',') comma_ = std::string::npos;
  }

  void skip_string() {
    see('"');
    for (++at_; at_ < text_.size() && text_[at_] != '"'; ++at_)
      if (text_[at_] == '\\') ++at_;
    ++at_;
  }

  void replace_infinity() {
    constexpr std::string_view kSpelled = "1e308   ";  // kJsonInfinity, as long as the word
    see('1');
    text_.replace(at_, kSpelled.size(), kSpelled);
    at_ += kSpelled.size();
  }

  /// An unclosed comment is left to the parser, which names its place.
  void blank_until(std::string_view end, size_t extra) {
    const size_t found = text_.find(end, at_ + extra);
    if (found == std::string::npos && extra > 0) {
      at_ = text_.size();
      return;
    }
    const size_t stop = found == std::string::npos ? text_.size() : found + extra;
    for (; at_ < stop; ++at_)
      if (text_[at_] != '\n') text_[at_] = ' ';
  }

  bool starts_with(std::string_view prefix) const { return text_.compare(at_, prefix.size(), prefix) == 0; }
  static bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

  std::string text_;
  size_t at_ = 0;
  size_t comma_ = std::string::npos;  // a comma after a value that only blanks have followed so far
  bool follows_value_ = false;
};

/// Follows the parser through the objects and refuses a key that its object already has. It keeps no values: a parser
/// that makes them and calls back would look through a whole list whenever one of its objects ends.
class DuplicateKeys final : public nlohmann::json_sax<Json> {
 public:
  explicit DuplicateKeys(std::string_view name) : name_(name) {}

  bool start_object(size_t) override {
    objects_.emplace_back();
    return true;
  }
  bool end_object() override {
    objects_.pop_back();
    return true;
  }
  bool key(std::string& key) override {
    Object& object = objects_.back();
    object.key = key;
    if (!object.seen.insert(key).second) fail<ConfigError>("{}: {}: the key is given twice", name_, path());
    return true;
  }

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(int64_t) override { return true; }
  bool number_unsigned(uint64_t) override { return true; }
  bool number_float(double, const std::string&) override { return true; }
  bool string(std::string&) override { return true; }
  bool binary(Json::binary_t&) override { return true; }
  bool start_array(size_t) override { return true; }
  bool end_array() override { return true; }
  /// Left to the parser that makes values, which says what is wrong.
  bool parse_error(size_t, const std::string&, const Json::exception&) override { return false; }

 private:
  struct Object {
    std::set<std::string> seen;
    std::string key;
  };

  std::string path() const {
    std::string path;
    for (const Object& object : objects_) path = join_path(path, object.key);
    return path;
  }

  std::string_view name_;
  std::vector<Object> objects_;
};

/// "line 3, column 5: syntax error ..." of the parser's message becomes "NAME:3:5: syntax error ...".
[[noreturn]] void fail_at(std::string_view name, std::string_view text, const Json::parse_error& error) {
  const size_t end = std::min(text.size(), error.byte > 0 ? error.byte - 1 : 0);
  const std::string_view before = text.substr(0, end);
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const size_t line_start = before.rfind('\n');
  const size_t column = before.size() - (line_start == std::string_view::npos ? 0 : line_start + 1) + 1;

  std::string_view what = error.what();
  if (const size_t at = what.find("syntax error"); at != std::string_view::npos) what.remove_prefix(at);
  fail<ConfigError>("{}:{}:{}: {}", name, line, column, what);
}

}  // namespace

Json parse_json(std::string_view text, std::string_view name) {
  const std::string blanked = Blanker(text).run();
  DuplicateKeys duplicates(name);
  try {
    Json::sax_parse(blanked, &duplicates);
    return Json::parse(blanked);
  } catch (const Json::parse_error& error) {
    fail_at(name, blanked, error);
  } catch (const Json::exception& error) {
    const std::string_view what = error.what();  // "[json.exception.out_of_range.406] number overflow ..."
    fail<ConfigError>("{}: {}", name, what.substr(what.find("] ") + 2));
  }
}

Json read_json_file(const std::string& path) {
  const std::optional<std::string> text = bytes_if_there(path);
  require<IoError>(text.has_value(), "{}: there is no such file", path);
  return parse_json(*text, path);
}

std::string describe_json(const Json& value) {
  switch (value.type()) {
    case Json::value_t::string:
      return fmt::format("the string {}", value.dump());
    case Json::value_t::boolean:
    case Json::value_t::null:
      return value.dump();
    case Json::value_t::array:
      // Only lists of few plain values are shown: dump() recurses, so a hostile file could exhaust the stack.
      return value.size() <= 8 &&
                     std::none_of(value.begin(), value.end(), [](const Json& e) { return e.is_structured(); })
                 ? fmt::format("the list {}", value.dump())
                 : "a list";
    case Json::value_t::object:
      return "an object";
    default:
      return fmt::format("the number {}", value.dump());
  }
}

std::string join_path(std::string_view path, std::string_view key) {
  return path.empty() ? std::string(key) : fmt::format("{}.{}", path, key);
}

void Origins::add_file(const std::string& path, const std::string& file) { replace(path, file); }

void Origins::add_override(const std::string& path) { replace(path, ""); }

void Origins::replace(const std::string& path, const std::string& file) {
  std::erase_if(sources_, [&](const auto& source) { return source.first.starts_with(path + "."); });
  sources_[path] = file;
}

std::pair<std::string_view, const std::string*> Origins::find(std::string_view path) const {
  for (std::string_view prefix = path;;) {
    if (const auto it = sources_.find(prefix); it != sources_.end()) return {prefix, &it->second};
    const size_t dot = prefix.rfind('.');
    if (dot == std::string_view::npos) return {"", nullptr};
    prefix = prefix.substr(0, dot);
  }
}

std::string Origins::place(std::string_view path) const {
  const auto [prefix, source] = find(path);
  if (source == nullptr) return path.empty() ? file_ : fmt::format("{}: {}", file_, path);
  if (source->empty()) return fmt::format("--set {}", path);
  const std::string_view inside = path.substr(std::min(path.size(), prefix.size() + 1));
  return inside.empty() ? *source : fmt::format("{}: {}", *source, inside);
}

std::vector<std::string> Origins::files() const {
  std::vector<std::string> files{file_};
  for (const auto& [path, file] : sources_)
    if (!file.empty()) files.push_back(file);
  return files;
}

bool Origins::is_override(std::string_view path) const {
  const std::string* source = find(path).second;
  return source != nullptr && source->empty();
}

Override parse_override(std::string_view text) {
  const size_t equals = text.find('=');
  require<ConfigError>(equals != std::string_view::npos && equals > 0,
                       "--set {}: expected key=value, for instance --set training.max_steps=5", text);
  Override result{std::string(text.substr(0, equals)), Json(), std::string(text.substr(equals + 1))};
  for (const std::string& key : split(result.path, '.'))
    require<ConfigError>(!key.empty(), "--set {}: the key \"{}\" has an empty part", text, result.path);
  const std::string& value = result.text;
  require<ConfigError>(is_valid_utf8(value), "--set {}: the value is not valid UTF-8", result.path);
  result.value = Json::accept(value) ? parse_json(value, fmt::format("--set {}", result.path)) : Json(value);
  return result;
}

std::string apply_override(Json& root, const Override& override) {
  Json* at = &root;
  std::string path, created;
  for (const std::string& key : split(override.path, '.')) {
    if (at->is_null()) *at = Json::object();
    require<ConfigError>(at->is_object(), "--set {}: {} is {}, so it has no key \"{}\"", override.path,
                         path.empty() ? "the configuration" : path, describe_json(*at), key);
    path = join_path(path, key);
    if (created.empty() && !at->contains(key)) created = path;
    at = &(*at)[key];
  }
  *at = override.value;
  return created.empty() ? path : created;
}

}  // namespace nought
