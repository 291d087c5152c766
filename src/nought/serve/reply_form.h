// ReplyForm: how a model writes its thinking and its calls of tools into the text of a reply.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <utility>

#include "nought/base/visit.h"
#include "nought/chat/chat_template.h"

namespace nought {

/// vLLM's names (--tool-call-parser).
enum class ToolForm : uint8_t {
  none,
  hermes,       // <tool_call>{"name": "f", "arguments": {...}}</tool_call>, each call; Qwen, too
  llama3_json,  // the reply is {"name": "f", "parameters": {...}}, others behind ';'; <|python_tag|> may come before
  mistral,      // [TOOL_CALLS][{"name": "f", "arguments": {...}}, ...], or [TOOL_CALLS]f[ARGS]{...} each
  deepseek_v3   // <｜tool▁call▁begin｜>function<｜tool▁sep｜>f, ```json, {...}, ```<｜tool▁call▁end｜>
};
template <>
struct EnumNames<ToolForm> {
  static constexpr std::array<std::pair<ToolForm, std::string_view>, 5> value{{{ToolForm::none, "none"},
                                                                               {ToolForm::hermes, "hermes"},
                                                                               {ToolForm::llama3_json, "llama3_json"},
                                                                               {ToolForm::mistral, "mistral"},
                                                                               {ToolForm::deepseek_v3, "deepseek_v3"}}};
};

/// vLLM's names (--reasoning-parser).
enum class ReasoningForm : uint8_t {
  none,
  qwen3,       // <think>...</think> before the reply, unless the reply begins otherwise
  deepseek_r1  // likewise, and every reply begins inside
};
template <>
struct EnumNames<ReasoningForm> {
  static constexpr std::array<std::pair<ReasoningForm, std::string_view>, 3> value{
      {{ReasoningForm::none, "none"}, {ReasoningForm::qwen3, "qwen3"}, {ReasoningForm::deepseek_r1, "deepseek_r1"}}};
};

/// What models write around thinking and calls.
namespace reply_marker {
inline constexpr std::string_view kThink = "<think>", kThinkEnd = "</think>", kHermesCall = "<tool_call>",
                                  kHermesCallEnd = "</tool_call>", kMistralCalls = "[TOOL_CALLS]",
                                  kLlamaCalls = "<|python_tag|>", kDeepSeekCalls = "<｜tool▁calls▁begin｜>",
                                  kDeepSeekCall = "<｜tool▁call▁begin｜>", kDeepSeekSeparator = "<｜tool▁sep｜>",
                                  kDeepSeekCallEnd = "<｜tool▁call▁end｜>", kDeepSeekCallsEnd = "<｜tool▁calls▁end｜>";
}  // namespace reply_marker

/// Whether a function may have this name: letters, digits and any of _-.:/
bool is_function_name(std::string_view text);

/// The form in which the template writes a call that it is given; if it takes none, what the tokenizer has a token for.
ToolForm tool_form_of(const ChatTemplate& chat, const Tokenizer& tokenizer);
/// qwen3 if the tokenizer has a token for the marker, or the template writes it.
ReasoningForm reasoning_form_of(const ChatTemplate& chat, const Tokenizer& tokenizer);

}  // namespace nought
