// ReplyParser: takes the text of a reply apart as it comes: thinking, what is said, and calls of tools.
//
// Nothing is returned before it is certain: white space and what may begin a marker are held back. A piece of text that
// begins like a call and is none is returned as content, whole.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "nought/serve/reply_form.h"

namespace nought {

struct ReplyPart {
  enum class Kind : uint8_t {
    content,
    reasoning,
    call,      // the name of the function that a new call calls
    arguments  // a piece of the JSON of the last call's arguments, as the model wrote it
  };
  Kind kind = Kind::content;
  std::string text = {};
  bool operator==(const ReplyPart&) const = default;
};

/// Follows a JSON string, list or object byte by byte to its end.
class JsonExtent {
 public:
  /// True with the byte that ends it.
  bool push(char byte);

 private:
  int64_t depth_ = 0;
  bool in_string_ = false, escaped_ = false;
};

class ReplyParser {
 public:
  struct Options {
    ToolForm tools = ToolForm::none;
    ReasoningForm reasoning = ReasoningForm::none;
    bool thinks = false;                       // the prompt has opened the thinking
    std::vector<std::string> tool_names = {};  // llama3_json: JSON that names no tool is content
  };
  explicit ReplyParser(Options options);

  /// Adds text. Returns what is certain now; neighbours of one kind are joined.
  std::vector<ReplyPart> push(std::string_view text);
  /// The rest, when no text follows.
  std::vector<ReplyPart> finish();
  /// How many calls have begun, and how many of them are whole.
  int64_t calls() const { return calls_; }
  int64_t whole_calls() const { return whole_calls_; }
  bool thinks() const { return state_ == State::thinking; }

 private:
  enum class State : uint8_t { start, thinking, content, call, name, member, arguments, call_end };
  /// One step of the state. False if more text is needed.
  bool advance();
  bool start();
  bool thinking();
  bool content();
  bool call();
  bool name();
  bool member();
  bool arguments();
  bool call_end();

  void emit(ReplyPart::Kind kind, std::string text);
  /// Moves so many bytes of held_ to raw_.
  void take(size_t bytes);
  void take_space();
  /// Whether held_ begins with a text; unknown while it may.
  std::optional<bool> begins(std::string_view text) const;
  void begin_call(const std::string& name);
  // These are the steps after which more may follow: they return true.
  bool end_call();
  bool to_content();
  bool give_back();  // what was taken for a call is content
  bool is_tool(const std::string& name) const;

  Options options_;
  std::string marker_;  // what begins calls, "": none
  State state_;
  std::string held_;       // text that is not taken yet
  std::string raw_;        // text that was taken since the marker of a call that has not begun yet
  std::string name_;       // of the call
  std::string arguments_;  // JSON that came before the name
  bool trims_ = false;     // white space that comes next is dropped
  bool said_ = false;      // there was content
  bool listed_ = false;    // calls stand in a list
  bool begun_ = false;     // a call is returned, and not whole
  JsonExtent extent_;      // of its arguments
  int64_t calls_ = 0, whole_calls_ = 0;
  std::vector<ReplyPart> parts_;
};

}  // namespace nought
