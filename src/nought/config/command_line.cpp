#include "nought/config/command_line.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>
#include <utility>

namespace nought {

namespace {

/// Stands in a text for what is not known before the script runs.
constexpr char kComputed = '\1';

/// Text, each character with the line on which it was written.
struct Text {
  std::string characters;
  std::vector<size_t> lines;

  void add(char c, size_t line) { characters += c, lines.push_back(line); }
};

bool is_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }
bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

/// The name in front of '=', if a word assigns one.
std::optional<std::string> assigned_name(const std::string& word) {
  const size_t end = word.find('=');
  if (end == std::string::npos || end == 0 || std::isdigit(static_cast<unsigned char>(word[0])) != 0) return {};
  const std::string name = word.substr(0, word[end - 1] == '+' ? end - 1 : end);
  return std::all_of(name.begin(), name.end(), is_name) ? std::optional(name) : std::nullopt;
}

class ShellReader {
 public:
  explicit ShellReader(std::string_view script) : script_(script) {}

  std::vector<ShellCommand> read() {
    while (at_ < script_.size()) step();
    end_command();
    return std::move(commands_);
  }

 private:
  char peek(size_t ahead = 0) const { return at_ + ahead < script_.size() ? script_[at_ + ahead] : '\0'; }
  char take() {
    const char c = script_[at_++];
    if (c == '\n') ++line_;
    return c;
  }
  void add(char c) { word_.add(c, line_), begun_ = true; }

  void step() {
    const char c = peek();
    if (c == '#' && !begun_) return skip_comment();
    if (c == '\\') return escape();
    if (is_blank(c)) return end_word(), void(take());
    if (c == '\'') return single_quotes();
    if (c == '"') return double_quotes();
    if (c == '$') return variable(false);
    if (c == '`') return printed('`');
    if (c == '>' || c == '<' || (c == '&' && peek(1) == '>')) return redirection();
    if (c == '(' && assigned_name(word_.characters)) return begin_array();
    if (c == '\n' || c == ';' || c == '|' || c == '&' || c == '(' || c == ')') {
      if (c == '\n' && array_) return end_word(), void(take());
      return end_command(), void(take());
    }
    add(take());
  }

  void skip_comment() {
    while (at_ < script_.size() && peek() != '\n') ++at_;
  }

  /// A backslash: at the end of a line it joins the next one.
  void escape() {
    ++at_;
    if (peek() == '\r' && peek(1) == '\n') ++at_;
    if (peek() == '\n') return void(take());
    if (at_ < script_.size()) add(take());
  }

  void single_quotes() {
    begun_ = true;
    for (++at_; at_ < script_.size() && peek() != '\'';) add(take());
    ++at_;
  }

  void double_quotes() {
    begun_ = true;
    for (++at_; at_ < script_.size() && peek() != '"';) {
      if (peek() == '\\') {
        escape();
      } else if (peek() == '$') {
        variable(true);
      } else if (peek() == '`') {
        printed('`');
      } else {
        add(take());
      }
    }
    ++at_;
  }

  /// Passes over what a command prints.
  void printed(char end) {
    add(kComputed);
    int depth = 0;
    for (++at_; at_ < script_.size(); take()) {
      if (end == ')' && peek() == '(') ++depth;
      if (peek() != end) continue;
      if (end == '`' || --depth == 0) break;
    }
    if (at_ < script_.size()) ++at_;
  }

  void variable(bool quoted) {
    if (peek(1) == '(') return printed(')');
    ++at_;
    std::string name, otherwise;
    if (peek() == '{') {
      const size_t end = std::min(script_.find('}', at_), script_.size() - 1);
      const std::string inside(script_.substr(at_ + 1, end - at_ - 1));
      at_ = end + 1;
      const size_t length = std::find_if_not(inside.begin(), inside.end(), is_name) - inside.begin();
      name = inside.substr(0, length), otherwise = inside.substr(length);
    } else if (is_name(peek())) {
      while (is_name(peek())) name += script_[at_++];
    } else if (peek() == '@' || peek() == '*' || peek() == '?' || peek() == '#') {
      ++at_;
      return;
    } else {
      return add('$');
    }
    expand(name, otherwise, quoted);
  }

  void expand(const std::string& name, const std::string& otherwise, bool quoted) {
    Text value;
    if (const auto known = variables_.find(name); known != variables_.end()) value = known->second;
    const bool has_default = otherwise.starts_with(":-") || otherwise.starts_with(":=");
    if (value.characters.empty() && (has_default || otherwise.starts_with('-')))
      for (const char c : otherwise.substr(has_default ? 2 : 1))
        if (c != '"' && c != '\'') value.add(c, line_);
    if (otherwise.starts_with("[@]")) quoted = false;
    if (quoted) begun_ = true;
    for (size_t i = 0; i < value.characters.size(); ++i) {
      const char c = value.characters[i];
      if (!quoted && (is_blank(c) || c == '\n')) {
        end_word();
      } else {
        word_.add(c, value.lines[i]), begun_ = true;
      }
    }
  }

  void redirection() {
    const std::string& word = word_.characters;
    if (std::all_of(word.begin(), word.end(), [](char c) { return '0' <= c && c <= '9'; }))
      word_ = {}, begun_ = false;  // the number of a stream
    end_word();
    while (peek() == '>' || peek() == '<' || peek() == '&') ++at_;
    skips_word_ = true;
  }

  void begin_array() {
    array_ = assigned_name(word_.characters);
    word_ = {}, begun_ = false;
    take();
  }

  void end_word() {
    if (!begun_) return;
    Text word = std::exchange(word_, {});
    begun_ = false;
    if (std::exchange(skips_word_, false)) return;
    const std::string& text = word.characters;
    const bool is_first = command_.empty() && !array_;
    if (is_first && (text == "if" || text == "fi")) {
      ifs_ += text == "if" ? 1 : -1;
    } else if (is_first && (text == "then" || text == "else" || text == "elif" || text == "do" || text == "export" ||
                            text == "local" || text == "declare" || text == "readonly")) {
      return;
    } else if (const auto name = assigned_name(text); is_first && name) {
      assign(*name, std::move(word));
    } else {
      command_.push_back({shown(text), word.lines.empty() ? line_ : word.lines[0], text.find(kComputed) != text.npos});
      texts_.push_back(std::move(word));
    }
  }

  void assign(const std::string& name, Text word) {
    const size_t begin = word.characters.find('=') + 1;
    const bool appends = word.characters[begin - 2] == '+';
    word.characters.erase(0, begin);
    word.lines.erase(word.lines.begin(), word.lines.begin() + static_cast<std::ptrdiff_t>(begin));
    Text& variable = variables_[name];
    if (appends) return join(variable, word);
    if (ifs_ <= 0 || variable.characters.empty()) variable = std::move(word);
  }

  static std::string shown(const std::string& text) {
    std::string shown;
    for (const char c : text) c == kComputed ? shown += "$(...)" : shown += c;
    return shown;
  }

  static void join(Text& text, const Text& more) {
    if (!text.characters.empty()) text.add(' ', text.lines.back());
    text.characters += more.characters;
    text.lines.insert(text.lines.end(), more.lines.begin(), more.lines.end());
  }

  void end_command() {
    end_word();
    skips_word_ = false;
    if (array_) {
      Text& variable = variables_[*std::exchange(array_, {})];
      for (const Text& text : texts_) join(variable, text);
    } else if (command_.size() > 3 && command_[0].text == "for" && command_[2].text == "in") {
      Text& variable = variables_[command_[1].text] = texts_[3];
      if (command_.size() > 4) variable.add(kComputed, line_);
    } else if (!command_.empty()) {
      commands_.push_back(command_);
    }
    command_.clear(), texts_.clear();
  }

  std::string_view script_;
  size_t at_ = 0, line_ = 1;
  Text word_;
  bool begun_ = false;       // whether there is a word, which may be empty
  bool skips_word_ = false;  // the next word is where output goes to
  int ifs_ = 0;
  std::optional<std::string> array_;  // the name of the one that is being read
  ShellCommand command_;
  std::vector<Text> texts_;  // of its words
  std::map<std::string, Text> variables_;
  std::vector<ShellCommand> commands_;
};

}  // namespace

std::vector<ShellCommand> read_commands(std::string_view script) { return ShellReader(script).read(); }

}  // namespace nought
