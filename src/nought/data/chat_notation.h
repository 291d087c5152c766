// The table of chat notations: what stands around the messages of a conversation, as the models' own templates have it.
#pragma once

#include <string_view>
#include <vector>

#include "nought/data/chat_template.h"

namespace nought {

/// In a turn's texts: what ends a text of the tokenizer.
constexpr char kEndOfText = '\x03';

/// What stands before and behind a message.
struct ChatTurn {
  std::string_view open, close;
};

/// Where a system message goes.
enum class SystemPlace {
  turn,     // a turn of its own, anywhere
  first,    // with an empty line behind it, before the text of the first user message
  block,    // the same, in a block <<SYS>> of its own
  up_front  // all of them together, before everything
};

struct ChatNotation {
  ChatFormat format;
  std::vector<std::string_view> telltales;  // that a tokenizer of such models has as tokens, all of them; empty: none
  std::vector<std::string_view> words;      // that the Jinja programs of such models have, all of them
  std::vector<std::string_view> not_words = {};  // and none of these
  std::vector<std::string_view> markers = {};    // that are tokens, and missed where they are not
  std::vector<std::string_view> spelt = {};      // that are tokens where the tokenizer has them, else text
  std::string_view begin = {};                   // a token before everything, where the tokenizer has it
  bool begins_each_user = false;                 // before each user's turn instead
  ChatTurn system = {}, user = {};
  std::string_view assistant = {};  // before the answer, which comes between `before` and `after`
  std::string_view before = {}, after = {};
  std::string_view end = {};    // the marker that ends an answer; "": the end of a text
  std::string_view close = {};  // behind it
  std::string_view last = {};   // behind a whole conversation
  SystemPlace place = SystemPlace::turn;
  bool trims = false;       // messages lose the white space around them
  bool alternates = false;  // user and assistant take turns, the user begins
};

/// Every notation, in the order in which the markers of a tokenizer or of a program are looked for.
const std::vector<ChatNotation>& chat_notations();
const ChatNotation& notation_of(ChatFormat format);

}  // namespace nought
