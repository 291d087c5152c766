#include "nought/serve/reply_parser.h"

#include <algorithm>
#include <utility>

namespace nought {

bool JsonExtent::push(char byte) {
  if (in_string_) {
    if (!std::exchange(escaped_, !escaped_ && byte == '\\') && byte == '"') in_string_ = false;
  } else if (byte == '"') {
    in_string_ = true;
  } else if (byte == '{' || byte == '[') {
    ++depth_;
  } else if (byte == '}' || byte == ']') {
    --depth_;
  }
  return depth_ <= 0 && !in_string_;
}

namespace {

constexpr std::string_view kSpace = " \t\r\n";
constexpr size_t kLongestName = 256;

std::string_view marker_of(ToolForm form) {
  switch (form) {
    case ToolForm::hermes:
      return reply_marker::kHermesCall;
    case ToolForm::llama3_json:
      return reply_marker::kLlamaCalls;
    case ToolForm::mistral:
      return reply_marker::kMistralCalls;
    case ToolForm::deepseek_v3:
      return reply_marker::kDeepSeekCalls;
    case ToolForm::none:
      break;
  }
  return "";
}

/// The length of a text without the white space at its end.
size_t trimmed(std::string_view text) { return text.find_last_not_of(kSpace) + 1; }

/// The length of what can neither be the beginning of the marker nor white space before it.
size_t certain(std::string_view text, std::string_view marker) {
  size_t length = std::min(marker.size() - 1, text.size());
  while (length > 0 && !text.ends_with(marker.substr(0, length))) --length;
  return trimmed(text.substr(0, text.size() - length));
}

/// Where the JSON value at `from` ends; nothing if that is not certain yet.
std::optional<size_t> value_end(std::string_view text, size_t from) {
  if (from >= text.size()) return std::nullopt;
  if (std::string_view("\"{[").find(text[from]) == std::string_view::npos) {
    const size_t end = text.find_first_of(",}] \t\r\n", from);
    return end == std::string_view::npos ? std::nullopt : std::optional(end);
  }
  JsonExtent extent;
  for (size_t at = from; at < text.size(); ++at)
    if (extent.push(text[at])) return at + 1;
  return std::nullopt;
}

/// The text of a JSON string, or nothing.
std::optional<std::string> string_of(std::string_view json) {
  const Json value = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  return value.is_string() ? std::optional(value.get<std::string>()) : std::nullopt;
}

}  // namespace

ReplyParser::ReplyParser(Options options)
    : options_(std::move(options)),
      marker_(marker_of(options_.tools)),
      state_(options_.reasoning == ReasoningForm::none                             ? State::content
             : options_.thinks || options_.reasoning == ReasoningForm::deepseek_r1 ? State::thinking
                                                                                   : State::start),
      trims_(state_ == State::thinking) {}

std::vector<ReplyPart> ReplyParser::push(std::string_view text) {
  held_ += text;
  while (advance()) continue;
  return std::exchange(parts_, {});
}

std::vector<ReplyPart> ReplyParser::finish() {
  while (advance()) continue;
  if (state_ == State::thinking) {
    held_.resize(trimmed(held_));
    emit(ReplyPart::Kind::reasoning, std::exchange(held_, {}));
  } else if (!begun_ && state_ != State::call_end) {
    emit(ReplyPart::Kind::content, std::exchange(raw_, {}) + std::exchange(held_, {}));
  }
  return std::exchange(parts_, {});
}

bool ReplyParser::advance() {
  switch (state_) {
    case State::start:
      return start();
    case State::thinking:
      return thinking();
    case State::content:
      return content();
    case State::call:
      return call();
    case State::name:
      return name();
    case State::member:
      return member();
    case State::arguments:
      return arguments();
    case State::call_end:
      return call_end();
  }
  return false;
}

void ReplyParser::emit(ReplyPart::Kind kind, std::string text) {
  if (text.empty()) return;
  if (kind == ReplyPart::Kind::content) said_ = true;
  if (!parts_.empty() && parts_.back().kind == kind && kind != ReplyPart::Kind::call) {
    parts_.back().text += text;
  } else {
    parts_.push_back({kind, std::move(text)});
  }
}

void ReplyParser::take(size_t bytes) {
  if (!begun_) raw_.append(held_, 0, bytes);
  held_.erase(0, bytes);
}

void ReplyParser::take_space() { take(std::min(held_.find_first_not_of(kSpace), held_.size())); }

std::optional<bool> ReplyParser::begins(std::string_view text) const {
  if (held_.starts_with(text)) return true;
  return text.starts_with(held_) ? std::nullopt : std::optional(false);
}

bool ReplyParser::start() {
  const size_t at = held_.find_first_not_of(kSpace);
  if (at == std::string::npos) return false;
  const std::string_view rest = std::string_view(held_).substr(at);
  if (rest.size() < reply_marker::kThink.size() && reply_marker::kThink.starts_with(rest)) return false;
  if (rest.starts_with(reply_marker::kThink)) {
    held_.erase(0, at + reply_marker::kThink.size());
    trims_ = true;
    state_ = State::thinking;
  } else {
    state_ = State::content;
  }
  return true;
}

bool ReplyParser::thinking() {
  if (trims_) held_.erase(0, held_.find_first_not_of(kSpace));
  const size_t end = held_.find(reply_marker::kThinkEnd);
  const size_t known =
      end == std::string::npos ? certain(held_, reply_marker::kThinkEnd) : trimmed(held_.substr(0, end));
  if (known > 0) trims_ = false;
  emit(ReplyPart::Kind::reasoning, held_.substr(0, known));
  held_.erase(0, end == std::string::npos ? known : end + reply_marker::kThinkEnd.size());
  if (end == std::string::npos) return false;
  trims_ = true;
  state_ = State::content;
  return true;
}

bool ReplyParser::content() {
  if (trims_) held_.erase(0, held_.find_first_not_of(kSpace));
  if (held_.empty()) return false;
  trims_ = false;
  if (marker_.empty()) {
    emit(ReplyPart::Kind::content, std::exchange(held_, {}));
    return false;
  }
  size_t at = held_.find(marker_), marker = marker_.size();
  if (options_.tools == ToolForm::llama3_json && !said_) {
    const size_t first = held_.find_first_not_of(kSpace);
    if (first == std::string::npos) return false;
    if (held_[first] == '{') at = first, marker = 0;
  }
  const size_t known = at == std::string::npos ? certain(held_, marker_) : trimmed(held_.substr(0, at));
  emit(ReplyPart::Kind::content, held_.substr(0, known));
  held_.erase(0, known);
  if (at == std::string::npos) return false;
  take(at - known + marker);
  listed_ = false;
  state_ = State::call;
  return true;
}

bool ReplyParser::call() {
  take_space();
  if (held_.empty()) return false;
  const bool mistral = options_.tools == ToolForm::mistral;
  if (options_.tools == ToolForm::deepseek_v3) {
    for (const std::string_view marker : {reply_marker::kDeepSeekCall, reply_marker::kDeepSeekCallsEnd}) {
      const std::optional<bool> is = begins(marker);
      if (!is) return false;
      if (!*is) continue;
      take(marker.size());
      if (marker == reply_marker::kDeepSeekCall) return state_ = State::name, true;
      return to_content();
    }
    return give_back();
  }
  if (held_[0] == '{') {
    take(1);
    state_ = State::member;
  } else if (mistral && (listed_ ? held_[0] == ',' : held_[0] == '[')) {
    listed_ = true;
    take(1);
  } else if (mistral && listed_ && held_[0] == ']') {
    take(1);
    return to_content();
  } else if (mistral && !listed_ && is_function_name(held_.substr(0, 1))) {
    state_ = State::name;
  } else {
    return give_back();
  }
  return true;
}

bool ReplyParser::name() {
  const size_t end = held_.find('{');
  if (end == std::string::npos) return held_.size() > kLongestName ? give_back() : false;
  std::string head = held_.substr(0, end);
  if (options_.tools == ToolForm::deepseek_v3) {
    const size_t separator = head.find(reply_marker::kDeepSeekSeparator);
    if (separator == std::string::npos) return give_back();
    std::string first = head.substr(0, separator),
                second = head.substr(separator + reply_marker::kDeepSeekSeparator.size());
    head = first == "function" ? second.substr(0, second.find('\n')) : first;
  } else {
    head = head.substr(0, head.find('['));
  }
  head.resize(trimmed(head));
  if (!is_function_name(head)) return give_back();
  begin_call(head);
  take(end);
  state_ = State::arguments;
  return true;
}

bool ReplyParser::member() {
  take_space();
  if (held_.empty()) return false;
  if (held_[0] == ',') return take(1), true;
  if (held_[0] == '}') {
    if (!begun_ && (name_.empty() || (arguments_.empty() && options_.tools == ToolForm::llama3_json)))
      return give_back();
    take(1);
    if (!begun_) {
      const std::string arguments = arguments_.empty() ? "{}" : arguments_;
      begin_call(name_);
      emit(ReplyPart::Kind::arguments, arguments);
    }
    return end_call();
  }
  const std::optional<size_t> key_end = held_[0] == '"' ? value_end(held_, 0) : std::optional<size_t>(0);
  if (!key_end) return false;
  const size_t colon = held_.find_first_not_of(kSpace, *key_end);
  if (*key_end > 0 && colon == std::string::npos) return false;
  if (*key_end == 0 || held_[colon] != ':') return give_back();
  const size_t value = held_.find_first_not_of(kSpace, colon + 1);
  if (value == std::string::npos) return false;
  const std::string key = string_of(held_.substr(0, *key_end)).value_or("");
  const bool is_arguments = key == "arguments" || key == "parameters";
  if (is_arguments && !begun_ && !name_.empty() && held_[value] == '{') {
    begin_call(name_);
    take(value);
    state_ = State::arguments;
    return true;
  }
  const std::optional<size_t> end = value_end(held_, value);
  if (!end) return false;
  const std::string json = held_.substr(value, *end - value);
  if (key == "name") name_ = string_of(json).value_or("");
  if (key == "name" && (name_.empty() || !is_tool(name_))) return give_back();
  if (is_arguments && json != "null") arguments_ = string_of(json).value_or(json);
  take(*end);
  return true;
}

bool ReplyParser::arguments() {
  size_t bytes = 0;
  bool whole = false;
  while (bytes < held_.size() && !whole) whole = extent_.push(held_[bytes++]);
  emit(ReplyPart::Kind::arguments, held_.substr(0, bytes));
  held_.erase(0, bytes);
  if (!whole) return false;
  const bool in_object = options_.tools == ToolForm::hermes || options_.tools == ToolForm::llama3_json || listed_;
  if (!in_object) return end_call();
  state_ = State::member;
  return true;
}

bool ReplyParser::call_end() {
  take_space();
  switch (options_.tools) {
    case ToolForm::hermes:
    case ToolForm::deepseek_v3: {
      const bool hermes = options_.tools == ToolForm::hermes;
      for (const std::string_view marker :
           {hermes ? reply_marker::kHermesCallEnd : std::string_view("```"), reply_marker::kDeepSeekCallEnd}) {
        const std::optional<bool> is = begins(marker);
        if (!is) return false;
        if (*is) take(marker.size());
        if (hermes) return to_content();
        take_space();
      }
      break;
    }
    case ToolForm::llama3_json:
      if (held_.empty()) return false;
      if (held_[0] == ';') take(1);
      take_space();
      if (held_.empty()) return false;
      if (held_[0] != '{') return to_content();
      break;
    default:
      if (!listed_) return to_content();
  }
  raw_.clear();
  state_ = State::call;
  return true;
}

void ReplyParser::begin_call(const std::string& name) {
  begun_ = true;
  ++calls_;
  raw_.clear();
  extent_ = {};
  emit(ReplyPart::Kind::call, name);
}

bool ReplyParser::end_call() {
  begun_ = false;
  ++whole_calls_;
  name_.clear();
  arguments_.clear();
  raw_.clear();
  state_ = State::call_end;
  return true;
}

bool ReplyParser::to_content() {
  raw_.clear();
  trims_ = true;
  state_ = State::content;
  return true;
}

bool ReplyParser::give_back() {
  if (begun_) return end_call();
  if (listed_ && trimmed(raw_) == 0) return to_content();
  emit(ReplyPart::Kind::content, std::exchange(raw_, {}));
  name_.clear();
  arguments_.clear();
  state_ = State::content;
  return true;
}

bool ReplyParser::is_tool(const std::string& name) const {
  const std::vector<std::string>& names = options_.tool_names;
  return options_.tools != ToolForm::llama3_json || std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace nought
