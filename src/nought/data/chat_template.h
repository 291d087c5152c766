// ChatTemplate: a conversation to tokens in one of the usual notations, and which of the tokens an assistant wrote.
//
// The notations are those of the models that brought them (data/chat_notation has the table): ChatML (Qwen), Llama 2
// and 3, Mistral (v3: <s>[INST] text[/INST] answer</s>), Zephyr, Gemma, Phi 3, 4 and 4 mini, DeepSeek (LLM, V2) and
// DeepSeek 3. What a marker means is never read out of a message: text that spells a marker is text. Mistral and Gemma
// have no place for a system message: it goes before the first user message, an empty line between.
#pragma once

#include <array>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "nought/base/visit.h"
#include "nought/data/tokenizer.h"

namespace nought {

enum class ChatFormat { chatml, llama2, llama3, mistral, zephyr, gemma, phi3, phi4, phi4_mini, deepseek, deepseek3 };

template <>
struct EnumNames<ChatFormat> {
  static constexpr std::array<std::pair<ChatFormat, std::string_view>, 11> value{{
      {ChatFormat::chatml, "chatml"},
      {ChatFormat::llama2, "llama2"},
      {ChatFormat::llama3, "llama3"},
      {ChatFormat::mistral, "mistral"},
      {ChatFormat::zephyr, "zephyr"},
      {ChatFormat::gemma, "gemma"},
      {ChatFormat::phi3, "phi3"},
      {ChatFormat::phi4, "phi4"},
      {ChatFormat::phi4_mini, "phi4-mini"},
      {ChatFormat::deepseek, "deepseek"},
      {ChatFormat::deepseek3, "deepseek3"},
  }};
};

/// "chatml, llama2, ...": for messages and help.
std::string chat_format_names();
/// The notation of that name. ConfigError with the nearest one.
ChatFormat chat_format(std::string_view name);
/// The notation whose markers a tokenizer has. ConfigError if it has none: then the user has to name one.
ChatFormat chat_format_of(const Tokenizer& tokenizer);

/// The notation that a model's folder names: by the markers in the Jinja program of its chat_template.jinja or its
/// tokenizer_config.json, which is not run; without one, chat_format_of(tokenizer). ConfigError for a program of
/// another notation.
ChatFormat chat_format_in(const std::filesystem::path& folder, const Tokenizer& tokenizer);

struct ChatMessage {
  std::string role;  // "system", "user" or "assistant"
  std::string content;
};

struct ChatNotation;

class ChatTemplate {
 public:
  /// `tokenizer` must outlive this. Markers that are no token of it are written as text.
  ChatTemplate(ChatFormat format, const Tokenizer& tokenizer);

  struct Tokens {
    std::vector<int32_t> ids;
    std::vector<uint8_t> targets;  // 1: of an assistant's message, or the marker that ends it
  };
  /// A whole conversation, to train on. ConfigError for roles that the notation cannot say, or in this order.
  Tokens conversation(std::span<const ChatMessage> messages) const;
  /// A conversation up to where the assistant's answer begins.
  std::vector<int32_t> prompt(std::span<const ChatMessage> messages) const;
  /// What ends an answer: a token, or else the text that stands for the marker.
  std::vector<int32_t> stop_ids() const;
  /// Markers that are written as text because the tokenizer has no token for them.
  std::vector<std::string> missing_markers() const;

 private:
  /// A marker of the notation, and the white space that the tokenizer takes with it.
  struct Marker {
    std::string_view text;
    std::optional<int32_t> id;
    bool strips_left = false, strips_right = false;
  };
  class Writer;
  /// Roles checked, white space trimmed, system messages where the notation has them.
  std::vector<ChatMessage> prepared(std::span<const ChatMessage> messages) const;
  std::string with_system(const std::string& system, const std::string& content) const;
  Tokens write(std::span<const ChatMessage> messages, bool answer) const;

  const ChatNotation& notation_;
  const Tokenizer& tokenizer_;
  std::vector<Marker> markers_;
};

}  // namespace nought
