// ChatTemplate: turns a conversation into tokens by a Jinja program, and says which tokens an assistant wrote.
//
// The program is that of the tokenizer's folder, of a file, or of one of the notations by name (chat_notation.h has the
// table): ChatML (Qwen), Llama 2 and 3, Mistral (v3: <s>[INST] text[/INST] answer</s>), Zephyr, Gemma, Phi 3, 4 and 4
// mini, DeepSeek (LLM, V2) and DeepSeek 3. The text that a program writes is encoded as transformers does it, but for
// one thing: what comes from a message is always text, also if it spells a marker.
#pragma once

#include <ctime>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "nought/chat/chat_format.h"
#include "nought/chat/jinja.h"
#include "nought/text/tokenizer.h"

namespace nought {

/// A chat template and what it is given.
struct ChatSource {
  std::string name;                                           // "chatml", or the file that holds the program
  std::string jinja;                                          // the program
  std::vector<std::pair<std::string, std::string>> specials;  // "bos_token" and others, and their texts
  std::vector<std::string> markers = {};                      // what should be tokens
  std::vector<std::string> spelt = {};                        // what may be tokens
  bool is_notation = false;  // one of the names: the tokenizer must have a token for each marker
  bool of_folder = false;    // it is that of the tokenizer's folder
};

/// All names, for messages and help: "chatml, llama2, ...".
std::string chat_format_names();
/// The notation of this name. If there is none, ConfigError names the nearest one.
ChatFormat chat_format(std::string_view name);
/// The notation whose markers the tokenizer has. ConfigError if it has those of none: the user has to name one then.
ChatFormat chat_format_of(const Tokenizer& tokenizer);

/// The template of that name.
ChatSource chat_source(ChatFormat format, const Tokenizer& tokenizer);
/// The template in force with a tokenizer that was made from `tokenizer_path`: `wanted`, which is a name or a file;
/// else that of the tokenizer's folder (chat_template.jinja, or "chat_template" in tokenizer_config.json or
/// chat_template.json); else the notation whose markers the tokenizer has. ConfigError if none of them says, IoError.
ChatSource chat_source_for(const std::string& wanted, const std::filesystem::path& tokenizer_path,
                           const Tokenizer& tokenizer);

struct ChatMessage {
  std::string role, content;
  jinja::Value fields = {};  // a mapping of its other keys, such as "tool_calls"; "content" may stand there as none
};

class ChatTemplate {
 public:
  /// `tokenizer` must outlive this object. A marker for which it has no token is written as text. ConfigError if the
  /// program is malformed, or has what is not supported.
  ChatTemplate(ChatSource source, const Tokenizer& tokenizer);
  ChatTemplate(ChatFormat format, const Tokenizer& tokenizer)
      : ChatTemplate(chat_source(format, tokenizer), tokenizer) {}

  struct Tokens {
    std::vector<int32_t> ids;
    std::vector<uint8_t> targets;  // 1 for tokens of an assistant's message and of the marker that ends it, else 0
    std::vector<size_t> starts;    // indices of ids at which documents begin
  };
  /// The tokens of a whole conversation, for training. `variables`, a mapping, holds what the program is given besides
  /// the messages ("tools", "documents"). ConfigError if the program refuses the messages.
  ///
  /// The targets are what stands in {% generation %} blocks. A program without them is run on each beginning of the
  /// conversation: an answer is what follows the prompt, up to where the next turn begins. If later turns change how an
  /// earlier answer is written (thinking is dropped), each such answer is the target of a document of its own, which
  /// ends with it. So each answer is a target once, after the tokens that come before it when the model is asked.
  /// ConfigError also if the program writes one of refused_markers().
  Tokens conversation(std::span<const ChatMessage> messages, const jinja::Value& variables = {}) const;
  /// The tokens of a conversation up to where the assistant's answer begins. The program knows today's date.
  std::vector<int32_t> prompt(std::span<const ChatMessage> messages, const jinja::Value& variables = {}) const;
  /// The tokens of a conversation as they are trained, on the day of training: whole, or, with `asks`, up to where the
  /// assistant's answer begins. Tokens may reach over that place, as transformers has them. ConfigError also if the
  /// program writes one of refused_markers().
  std::vector<int32_t> trained_ids(std::span<const ChatMessage> messages, const jinja::Value& variables,
                                   bool asks) const;
  /// The text of a conversation. asks: up to where the assistant's answer begins.
  jinja::Rendered text(std::span<const ChatMessage> messages, const jinja::Value& variables, bool asks,
                       const std::tm& now) const;
  /// The ids that end an answer: of documents, and of answers in this template if that is a token.
  std::vector<int32_t> stop_ids() const;
  /// Markers that prompt() writes as text because the tokenizer has no token for them.
  std::vector<std::string> missing_markers() const;
  /// The missing markers with which conversation() writes nothing. All, but for the markers of a program that models
  /// are known to have learned as text.
  std::vector<std::string> refused_markers() const;
  /// ConfigError, which says how to add them, if a named template has refused ones, or if a program writes some into
  /// the plainest conversation.
  void require_markers() const;
  const std::string& name() const { return source_.name; }

 private:
  class Answers;
  struct Span {
    size_t begin, end;  // bytes
  };
  /// The first marker that the program wrote, at or behind `from`.
  std::optional<MarkerMatch> next_marker(const jinja::Rendered& text, size_t from) const;
  /// `targets` are in their order.
  void encode(const jinja::Rendered& text, std::span<const Span> targets, Tokens& tokens) const;
  /// ConfigError if there are tools, calls of them, or documents.
  void refuse_unwritten(std::span<const ChatMessage> messages, const jinja::Value& variables) const;
  /// ConfigError if there are any, which says how to add them.
  void refuse(const std::vector<std::string>& markers) const;
  /// The refused_markers() that the program wrote.
  std::vector<std::string> refused_in(const jinja::Rendered& text) const;

  ChatSource source_;
  jinja::Program program_;
  const Tokenizer& tokenizer_;
  std::vector<std::pair<std::string, int32_t>> markers_;  // what the source names, and its tokens
};

}  // namespace nought
