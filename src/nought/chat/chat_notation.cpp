#include "nought/chat/chat_notation.h"

#include <algorithm>
#include <initializer_list>

#include "nought/base/error.h"

namespace nought {

namespace {

ChatNotation llama3() {
  return {.format = ChatFormat::llama3,
          .telltales = {"<|start_header_id|>"},
          .markers = {"<|start_header_id|>", "<|end_header_id|>"},
          .begin = "<|begin_of_text|>",
          .system = {"<|start_header_id|>system<|end_header_id|>\n\n", "<|eot_id|>"},
          .user = {"<|start_header_id|>user<|end_header_id|>\n\n", "<|eot_id|>"},
          .assistant = "<|start_header_id|>assistant<|end_header_id|>\n\n",
          .end = "<|eot_id|>",
          .trims = true};
}

ChatNotation gemma() {
  return {.format = ChatFormat::gemma,
          .telltales = {"<start_of_turn>"},
          .markers = {"<start_of_turn>"},
          .begin = "<bos>",
          .user = {"<start_of_turn>user\n", "<end_of_turn>\n"},
          .assistant = "<start_of_turn>model\n",
          .end = "<end_of_turn>",
          .close = "\n",
          .place = SystemPlace::first,
          .trims = true,
          .alternates = true};
}

ChatNotation phi4() {
  return {.format = ChatFormat::phi4,
          .telltales = {"<|im_sep|>"},
          .markers = {"<|im_start|>", "<|im_sep|>"},
          .system = {"<|im_start|>system<|im_sep|>", "<|im_end|>"},
          .user = {"<|im_start|>user<|im_sep|>", "<|im_end|>"},
          .assistant = "<|im_start|>assistant<|im_sep|>",
          .end = "<|im_end|>"};
}

ChatNotation chatml() {
  return {.format = ChatFormat::chatml,
          .telltales = {"<|im_start|>"},
          .markers = {"<|im_start|>"},
          .system = {"<|im_start|>system\n", "<|im_end|>\n"},
          .user = {"<|im_start|>user\n", "<|im_end|>\n"},
          .assistant = "<|im_start|>assistant\n",
          .end = "<|im_end|>",
          .close = "\n"};
}

/// Each turn of a user begins a text, and what the assistant says has a space on either side.
ChatNotation llama2() {
  return {.format = ChatFormat::llama2,
          .telltales = {},
          .begin = "<s>",
          .begins_each_user = true,
          .user = {"[INST] ", " [/INST]"},
          .before = " ",
          .after = " ",
          .place = SystemPlace::block,
          .trims = true,
          .alternates = true};
}

/// Answers begin with a space, which the model writes itself. The markers were text until v3.
ChatNotation mistral() {
  return {.format = ChatFormat::mistral,
          .telltales = {"[INST]"},
          .spelt = {"[INST]", "[/INST]"},
          .begin = "<s>",
          .user = {"[INST] ", "[/INST]"},
          .before = " ",
          .place = SystemPlace::first,
          .trims = true,
          .alternates = true};
}

ChatNotation deepseek3() {
  return {.format = ChatFormat::deepseek3,
          .telltales = {"<｜User｜>", "<｜Assistant｜>"},
          .markers = {"<｜User｜>", "<｜Assistant｜>"},
          .begin = "<｜begin▁of▁sentence｜>",
          .user = {"<｜User｜>", ""},
          .assistant = "<｜Assistant｜>",
          .end = "<｜end▁of▁sentence｜>",
          .place = SystemPlace::up_front};
}

/// DeepSeek LLM, V2 and Coder V2: the space behind "Assistant:" is the model's.
ChatNotation deepseek() {
  return {.format = ChatFormat::deepseek,
          .telltales = {"<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"},
          .begin = "<｜begin▁of▁sentence｜>",
          .system = {"", "\n\n"},
          .user = {"User: ", "\n\n"},
          .assistant = "Assistant:",
          .before = " "};
}

ChatNotation phi3() {
  return {.format = ChatFormat::phi3,
          .telltales = {"<|assistant|>", "<|end|>"},
          .markers = {"<|system|>", "<|user|>", "<|assistant|>"},
          .system = {"<|system|>\n", "<|end|>\n"},
          .user = {"<|user|>\n", "<|end|>\n"},
          .assistant = "<|assistant|>\n",
          .end = "<|end|>",
          .close = "\n",
          .last = "\x03"};
}

ChatNotation phi4_mini() {
  return {.format = ChatFormat::phi4_mini,
          .telltales = {},
          .markers = {"<|system|>", "<|user|>", "<|assistant|>"},
          .system = {"<|system|>", "<|end|>"},
          .user = {"<|user|>", "<|end|>"},
          .assistant = "<|assistant|>",
          .end = "<|end|>",
          .last = "\x03"};
}

/// Its markers were text from the start, and are words of other models.
ChatNotation zephyr() {
  return {.format = ChatFormat::zephyr,
          .telltales = {"<|assistant|>"},
          .system = {"<|system|>\n", "\x03\n"},
          .user = {"<|user|>\n", "\x03\n"},
          .assistant = "<|assistant|>\n",
          .close = "\n"};
}

/// A Jinja expression for a text in which kEndOfText stands for the token that ends a document; "" for no text.
std::string quoted(std::string_view text) {
  std::string plain, all;
  const auto add = [&](const std::string& part) { all += (all.empty() ? "" : " ~ ") + part; };
  const auto flush = [&] {
    if (!plain.empty()) add("'" + plain + "'");
    plain.clear();
  };
  for (const char c : text) {
    if (c == kEndOfText) {
      flush();
      add("eos_token");
    } else {
      plain += c == '\n' ? "\\n" : std::string(1, c);
    }
  }
  flush();
  return all;
}

/// An output of these expressions, one after the other.
std::string output(std::initializer_list<std::string> parts) {
  std::string all;
  for (const std::string& part : parts)
    if (!part.empty()) all += (all.empty() ? "" : " ~ ") + part;
  return all.empty() ? "" : fmt::format("{{{{- {} }}}}", all);
}

std::string refusal(std::string_view when, std::string_view message) {
  return fmt::format("{{%- if {} %}}{{{{- raise_exception({}) }}}}{{%- endif %}}\n", when, message);
}

/// What is done with a system message that has no turn of its own.
std::string folded_system(const ChatNotation& notation) {
  const std::string_view name = enum_name(notation.format);
  std::string text = "{%- if message['role'] == 'system' %}\n";
  text += refusal("not loop.first", fmt::format("'message ' ~ loop.index ~ ' is a system message; {} has it only as "
                                                "the first'",
                                                name));
  return text + "{%- set ns.system = message['content'] %}\n{%- else %}\n";
}

/// The text of a message: the program's variable "content".
std::string content_of(const ChatNotation& notation) {
  std::string text = "{%- set content = message['content'] %}\n";
  if (notation.place == SystemPlace::first || notation.place == SystemPlace::block) {
    text += "{%- if ns.system is not none %}\n";
    text += notation.place == SystemPlace::block
                ? "{%- set content = '<<SYS>>\\n' ~ ns.system ~ '\\n<</SYS>>\\n\\n' ~ content %}\n"
                : "{%- set content = ns.system.strip() ~ '\\n\\n' ~ content.strip() %}\n";
    text += "{%- set ns.system = none %}\n{%- endif %}\n";
  }
  return text + (notation.trims ? "{%- set content = content.strip() %}\n" : "");
}

/// All system messages, with empty lines between, before the first turn.
std::string system_up_front(const ChatNotation& notation) {
  return "{%- for message in messages %}{%- if message['role'] == 'system' %}\n"
         "{%- if ns.system is none %}{%- set ns.system = message['content'] %}\n"
         "{%- else %}{%- set ns.system = ns.system ~ '\\n\\n' ~ message['content'] %}{%- endif %}\n"
         "{%- endif %}{%- endfor %}\n{%- if ns.system is not none %}" +
         output({quoted(notation.system.open), "ns.system", quoted(notation.system.close)}) + "{%- endif %}\n";
}

/// A message of the assistant. Trainers learn what stands between the generation tags, as the model writes it itself.
std::string answer_of(const ChatNotation& notation) {
  return output({quoted(notation.assistant)}) + "{%- generation %}" +
         output({quoted(notation.before), "content", quoted(notation.after),
                 notation.end.empty() ? "eos_token" : quoted(notation.end)}) +
         "{%- endgeneration %}" + output({quoted(notation.close)});
}

}  // namespace

std::string jinja_of(const ChatNotation& notation, bool begins) {
  const std::string_view name = enum_name(notation.format);
  const std::string begin = begins ? quoted(notation.begin) : "";
  const bool folds = notation.place == SystemPlace::first || notation.place == SystemPlace::block;
  const bool has_turns = notation.place == SystemPlace::turn;
  std::string text = notation.begins_each_user || !begins ? "" : output({begin}) + "\n";
  if (!has_turns || notation.alternates) text += "{%- set ns = namespace(system=none, turn=0) %}\n";
  if (notation.place == SystemPlace::up_front) text += system_up_front(notation);
  text += "{%- for message in messages %}\n";
  text += refusal("message['role'] not in ['system', 'user', 'assistant']",
                  fmt::format("'message ' ~ loop.index ~ ' has the role \"' ~ message['role'] ~ '\"; {} knows system, "
                              "user and assistant'",
                              name));
  if (folds) text += folded_system(notation);
  if (notation.place == SystemPlace::up_front) text += "{%- if message['role'] != 'system' %}\n";
  if (notation.alternates) {
    text += "{%- set turn = 'user' if ns.turn % 2 == 0 else 'assistant' %}\n";
    text +=
        refusal("message['role'] != turn",
                fmt::format("'message ' ~ loop.index ~ ' is the ' ~ message['role'] ~ \"'s where {} has the \" ~ turn "
                            "~ \"'s: they take turns\"",
                            name));
    text += "{%- set ns.turn = ns.turn + 1 %}\n";
  }
  text += content_of(notation) + "{%- if message['role'] == 'assistant' %}" + answer_of(notation);
  if (has_turns)
    text += "\n{%- elif message['role'] == 'system' %}" +
            output({quoted(notation.system.open), "content", quoted(notation.system.close)});
  text += "\n{%- else %}" + output({notation.begins_each_user ? begin : "", quoted(notation.user.open), "content",
                                    quoted(notation.user.close)});
  text += has_turns ? "{%- endif %}\n{%- endfor %}\n" : "{%- endif %}\n{%- endif %}\n{%- endfor %}\n";
  if (folds) text += refusal("ns.system is not none", "'a conversation without messages of a user or an assistant'");
  const std::string answer = output({quoted(notation.assistant)}), last = output({quoted(notation.last)});
  if (!answer.empty()) text += "{%- if add_generation_prompt %}" + answer;
  if (!answer.empty() && !last.empty()) text += "{%- else %}" + last;
  return text + (answer.empty() ? "" : "{%- endif %}\n");
}

const std::vector<ChatNotation>& chat_notations() {
  static const std::vector<ChatNotation> notations{llama3(),    gemma(),    phi4(), chatml(),    llama2(), mistral(),
                                                   deepseek3(), deepseek(), phi3(), phi4_mini(), zephyr()};
  return notations;
}

const ChatNotation& notation_of(ChatFormat format) {
  const auto& all = chat_notations();
  return *std::find_if(all.begin(), all.end(), [&](const ChatNotation& each) { return each.format == format; });
}

}  // namespace nought
