// ChatTemplate: turns a conversation into tokens in one of the usual notations, and says which tokens an assistant
// wrote.
//
// Each notation is that of the models that introduced it (chat_notation.h has the table): ChatML (Qwen), Llama 2 and 3,
// Mistral (v3: <s>[INST] text[/INST] answer</s>), Zephyr, Gemma, Phi 3, 4 and 4 mini, DeepSeek (LLM, V2) and
// DeepSeek 3. A message is always text, also if it spells a marker. Mistral and Gemma have no turn for a system
// message; it goes before the first user message, with an empty line between.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "nought/data/formats.h"
#include "nought/data/tokenizer.h"

namespace nought {

/// All names, for messages and help: "chatml, llama2, ...".
std::string chat_format_names();
/// The notation of this name. If there is none, ConfigError names the nearest one.
ChatFormat chat_format(std::string_view name);
/// The notation whose markers the tokenizer has. ConfigError if it has those of none: the user has to name one then.
ChatFormat chat_format_of(const Tokenizer& tokenizer);

/// The Jinja program of a folder: chat_template.jinja, or what tokenizer_config.json holds; "" if it has none.
/// ConfigError if it is no text.
std::string chat_program(const std::filesystem::path& folder);
/// The notation of the model in a folder. It is recognized by the markers in the Jinja program of chat_template.jinja
/// or tokenizer_config.json. The program is not run. Without a program it is chat_format_of(tokenizer). ConfigError if
/// the program has an unknown notation.
ChatFormat chat_format_in(const std::filesystem::path& folder, const Tokenizer& tokenizer);

/// The notation to use with a tokenizer that was made from `path`: the named one; else that of the folder, if `path` is
/// one; else by the tokenizer's markers. ConfigError if none of them says.
ChatFormat chat_format_for(std::optional<ChatFormat> named, const std::filesystem::path& path,
                           const Tokenizer& tokenizer);

struct ChatMessage {
  std::string role;  // "system", "user" or "assistant"
  std::string content;
};

struct ChatNotation;

class ChatTemplate {
 public:
  /// `tokenizer` must outlive this object. A marker for which it has no token is written as text.
  ChatTemplate(ChatFormat format, const Tokenizer& tokenizer);

  struct Tokens {
    std::vector<int32_t> ids;
    std::vector<uint8_t> targets;  // 1 for tokens of an assistant's message and of the marker that ends it, else 0
  };
  /// The tokens of a whole conversation, for training. ConfigError for a role, or an order of roles, that the notation
  /// cannot express.
  Tokens conversation(std::span<const ChatMessage> messages) const;
  /// The tokens of a conversation up to where the assistant's answer begins.
  std::vector<int32_t> prompt(std::span<const ChatMessage> messages) const;
  /// The ids that end an answer: the marker's token, or the tokens of its text if it has none.
  std::vector<int32_t> stop_ids() const;
  /// Markers that are written as text because the tokenizer has no token for them.
  std::vector<std::string> missing_markers() const;
  /// ConfigError, which says how to add them, if there are any.
  void require_markers() const;

 private:
  /// A marker of the notation, its token, and whether white space beside it belongs to the token.
  struct Marker {
    std::string_view text;
    std::optional<int32_t> id;
    bool strips_left = false, strips_right = false;
  };
  class Writer;
  /// The messages with roles checked, white space trimmed, and system messages where the notation has them.
  std::vector<ChatMessage> prepared(std::span<const ChatMessage> messages) const;
  std::string with_system(const std::string& system, const std::string& content) const;
  Tokens write(std::span<const ChatMessage> messages, bool answer) const;

  const ChatNotation& notation_;
  const Tokenizer& tokenizer_;
  std::vector<Marker> markers_;
};

}  // namespace nought
