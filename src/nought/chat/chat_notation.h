// The table of chat notations: what stands around the messages of a conversation, as in the models' own templates.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "nought/chat/chat_template.h"

namespace nought {

/// Stands in a notation's texts for the token that ends a document.
constexpr char kEndOfText = '\x03';

/// The text before and behind a message.
struct ChatTurn {
  std::string_view open, close;
};

/// Where a system message goes.
enum class SystemPlace {
  turn,     // it is a turn of its own, anywhere in the conversation
  first,    // it stands before the text of the first user message, with an empty line between
  block,    // it stands there too, within <<SYS>> and <</SYS>>
  up_front  // all system messages stand together before the first turn
};

/// One notation, and how a tokenizer is known to have it. A marker is a special token, or the text that stands for one.
struct ChatNotation {
  ChatFormat format;
  /// The tokenizer of a model with this notation has all of these tokens. Empty: a tokenizer does not tell.
  std::vector<std::string_view> telltales;
  std::vector<std::string_view> markers = {};  // the tokenizer must have a token for each
  std::vector<std::string_view> spelt = {};    // markers that may be text
  std::string_view begin = {};                 // the marker at the start, if the tokenizer has it
  bool begins_each_user = false;               // `begin` stands before each user's turn instead
  ChatTurn system = {}, user = {};
  std::string_view assistant = {};           // the text before an answer
  std::string_view before = {}, after = {};  // white space directly around an answer
  std::string_view end = {};                 // the marker that ends an answer; "": the token that ends a document
  std::string_view close = {};               // the text behind that marker
  std::string_view last = {};                // the text behind a whole conversation
  SystemPlace place = SystemPlace::turn;
  bool trims = false;       // white space around each message is removed
  bool alternates = false;  // user and assistant must take turns, and the user begins
};

/// All notations, in the order in which they are tried on a tokenizer.
const std::vector<ChatNotation>& chat_notations();
/// The entry of a format.
const ChatNotation& notation_of(ChatFormat format);
/// The Jinja program that writes conversations in a notation, and refuses those that it cannot express. It knows the
/// variables of transformers. begins: the tokenizer has the marker at the start.
std::string jinja_of(const ChatNotation& notation, bool begins);

}  // namespace nought
