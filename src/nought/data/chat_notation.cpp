#include "nought/data/chat_notation.h"

#include <algorithm>

namespace nought {

namespace {

ChatNotation llama3() {
  return {.format = ChatFormat::llama3,
          .telltales = {"<|start_header_id|>"},
          .words = {"<|start_header_id|>"},
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
          .words = {"<start_of_turn>"},
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
          .words = {"<|im_sep|>"},
          .not_words = {"You are Phi"},  // reasoning models bring a system message of their own
          .markers = {"<|im_start|>", "<|im_sep|>"},
          .system = {"<|im_start|>system<|im_sep|>", "<|im_end|>"},
          .user = {"<|im_start|>user<|im_sep|>", "<|im_end|>"},
          .assistant = "<|im_start|>assistant<|im_sep|>",
          .end = "<|im_end|>"};
}

ChatNotation chatml() {
  return {.format = ChatFormat::chatml,
          .telltales = {"<|im_start|>"},
          .words = {"<|im_start|>"},
          .not_words = {"<|im_sep|>"},
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
          .words = {"[INST]", "<<SYS>>"},
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
          .words = {"[INST]"},
          .not_words = {"<<SYS>>"},
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
          .words = {"<｜User｜>", "<｜Assistant｜>"},
          .not_words = {"</think>"},  // R1 forgets what it thought
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
          .words = {"'User: '", "'Assistant: '", "'Assistant:'"},
          .begin = "<｜begin▁of▁sentence｜>",
          .system = {"", "\n\n"},
          .user = {"User: ", "\n\n"},
          .assistant = "Assistant:",
          .before = " "};
}

ChatNotation phi3() {
  return {.format = ChatFormat::phi3,
          .telltales = {"<|assistant|>", "<|end|>"},
          .words = {"<|assistant|>", "<|end|>", "\\n", "eos_token"},
          .not_words = {"bos_token"},
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
          .words = {"<|assistant|>", "<|end|>", "eos_token"},
          .not_words = {"bos_token", "\\n"},
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
          .words = {"<|assistant|>"},
          .not_words = {"<|end|>"},
          .spelt = {"<|system|>", "<|user|>", "<|assistant|>"},
          .system = {"<|system|>\n", "\x03\n"},
          .user = {"<|user|>\n", "\x03\n"},
          .assistant = "<|assistant|>\n",
          .close = "\n"};
}

}  // namespace

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
