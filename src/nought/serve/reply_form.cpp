#include "nought/serve/reply_form.h"

#include <algorithm>
#include <cctype>
#include <string>
#include <vector>

#include "nought/chat/conversation.h"

namespace nought {

namespace {

/// What the template writes of a call and of a reply that holds thinking; "" if it refuses them.
std::string probe_text(const ChatTemplate& chat, const OrderedJson& answer) {
  const OrderedJson body{
      {"messages", OrderedJson::array({{{"role", "user"}, {"content", "probe"}}, answer})},
      {"tools",
       OrderedJson::array({{{"type", "function"},
                            {"function",
                             {{"name", "probe_name"},
                              {"description", "probe"},
                              {"parameters", {{"type", "object"}, {"properties", OrderedJson::object()}}}}}}})}};
  std::tm day{};
  day.tm_mday = 1, day.tm_year = 126;
  try {
    const jinja::Rendered text = chat.text(read_conversation(body["messages"]).messages, template_variables(body),
                                           /*asks=*/true, day);
    return text.str();
  } catch (const ConfigError&) {
    return "";
  }
}

}  // namespace

bool is_function_name(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char each) {
    return std::isalnum(each) || each == '_' || each == '-' || each == '.' || each == ':' || each == '/';
  });
}

ToolForm tool_form_of(const ChatTemplate& chat, const Tokenizer& tokenizer) {
  const OrderedJson call{{"id", "probe0000"},
                         {"type", "function"},
                         {"function", {{"name", "probe_name"}, {"arguments", {{"key", "probe_value"}}}}}};
  const std::string text = probe_text(chat, {{"role", "assistant"}, {"content", nullptr}, {"tool_calls", {call}}});
  // The last place: the list of tools has the name, too.
  const size_t name = text.find("probe_value") == std::string::npos ? std::string::npos : text.rfind("probe_name");
  const auto before = [&](std::string_view marker) {
    const size_t at = text.rfind(marker, name);
    return name != std::string::npos && at != std::string::npos && name - at < 80;
  };
  if (before(reply_marker::kHermesCall) && text.find("\"arguments\"", name) != std::string::npos)
    return ToolForm::hermes;
  if (before(reply_marker::kMistralCalls)) return ToolForm::mistral;
  if (before(reply_marker::kDeepSeekCall)) return ToolForm::deepseek_v3;
  if (before("{\"name\": \"") && text.find("\"parameters\"", name) != std::string::npos) return ToolForm::llama3_json;
  if (name != std::string::npos) return ToolForm::none;  // a form that is not known here
  if (tokenizer.find(reply_marker::kHermesCall)) return ToolForm::hermes;
  if (tokenizer.find(reply_marker::kMistralCalls)) return ToolForm::mistral;
  if (tokenizer.find(reply_marker::kDeepSeekCall)) return ToolForm::deepseek_v3;
  return tokenizer.find(reply_marker::kLlamaCalls) ? ToolForm::llama3_json : ToolForm::none;
}

ReasoningForm reasoning_form_of(const ChatTemplate& chat, const Tokenizer& tokenizer) {
  if (tokenizer.find(reply_marker::kThink)) return ReasoningForm::qwen3;
  const OrderedJson answer{{"role", "assistant"}, {"content", "probe"}, {"reasoning_content", "probe_reason"}};
  return probe_text(chat, answer).find(reply_marker::kThink) == std::string::npos ? ReasoningForm::none
                                                                                  : ReasoningForm::qwen3;
}

}  // namespace nought
