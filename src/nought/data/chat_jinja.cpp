#include "nought/data/chat_jinja.h"

#include <fmt/format.h>

#include "nought/data/chat_notation.h"

namespace nought {

namespace {

/// The text as an expression: a string of Jinja, or several and eos_token, joined by +. "" for no text.
std::string expression(std::string_view text) {
  std::string result, literal;
  const auto add = [&](const std::string& term) { result += (result.empty() ? "" : " + ") + term; };
  const auto flush = [&] {
    if (!literal.empty()) add("'" + literal + "'");
    literal.clear();
  };
  for (const char c : text) {
    if (c == kEndOfText) {
      flush();
      add("eos_token");
    } else if (c == '\n') {
      literal += "\\n";
    } else {
      if (c == '\'' || c == '\\') literal += '\\';
      literal += c;
    }
  }
  flush();
  return result;
}

/// {{ a + b + c }} of the expressions that are not empty; "" if all are.
std::string print(std::initializer_list<std::string> terms) {
  std::string sum;
  for (const std::string& term : terms)
    if (!term.empty()) sum += (sum.empty() ? "" : " + ") + term;
  return sum.empty() ? "" : "{{ " + sum + " }}";
}

std::string refusal(std::string_view message) { return fmt::format("{{{{ raise_exception('{}') }}}}", message); }

/// Writes the program of one notation.
class JinjaWriter {
 public:
  JinjaWriter(const ChatNotation& notation, const Tokenizer& tokenizer) : notation_(notation) {
    if (!notation.begin.empty() && tokenizer.find(notation.begin)) begin_ = expression(notation.begin);
  }

  std::string write() const {
    std::string text = notation_.begins_each_user ? "" : print({begin_});
    text += before_turns();
    text += folds() ? "{% for message in turns %}" : "{% for message in messages %}";
    if (notation_.alternates)
      text += "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}" +
              refusal("Roles must alternate: user, assistant, user, assistant") + "{% endif %}";
    text += content();
    text += "{% if message['role'] == 'assistant' %}" + answer();
    text += "{% elif message['role'] == 'user' %}" +
            print({notation_.begins_each_user ? begin_ : "", expression(notation_.user.open), "content",
                   expression(notation_.user.close)});
    if (notation_.place == SystemPlace::turn)
      text += "{% elif message['role'] == 'system' %}" +
              print({expression(notation_.system.open), "content", expression(notation_.system.close)});
    text += notation_.place == SystemPlace::up_front ? "{% elif message['role'] != 'system' %}" : "{% else %}";
    text += refusal("Roles are system, user and assistant") + "{% endif %}{% endfor %}";
    text += "{% if add_generation_prompt %}" + print({expression(notation_.assistant)});
    if (!notation_.last.empty()) text += "{% else %}" + print({expression(notation_.last)});
    return text + "{% endif %}";
  }

 private:
  /// Whether the system message is a part of the first user's.
  bool folds() const { return notation_.place == SystemPlace::first || notation_.place == SystemPlace::block; }

  std::string before_turns() const {
    if (folds())
      return "{% if messages[0]['role'] == 'system' %}{% set turns = messages[1:] %}"
             "{% set system = messages[0]['content'] %}"
             "{% else %}{% set turns = messages %}{% set system = none %}{% endif %}";
    if (notation_.place != SystemPlace::up_front) return "";
    return "{% set all = namespace(system='', found=false) %}{% for message in messages %}"
           "{% if message['role'] == 'system' %}{% if all.found %}{% set all.system = all.system + '\\n\\n' %}{% endif "
           "%}"
           "{% set all.system = all.system + message['content'] %}{% set all.found = true %}{% endif %}{% endfor %}"
           "{% if all.found %}" +
           print({expression(notation_.system.open), "all.system", expression(notation_.system.close)}) + "{% endif %}";
  }

  /// Sets `content` to the text of a message.
  std::string content() const {
    const std::string plain = notation_.trims ? "message['content'] | trim" : "message['content']";
    if (!folds()) return "{% set content = " + plain + " %}";
    const std::string joined = notation_.place == SystemPlace::first
                                   ? "(system | trim) + '\\n\\n' + (message['content'] | trim)"
                                   : "'<<SYS>>\\n' + system + '\\n<</SYS>>\\n\\n' + message['content']";
    return "{% if loop.index0 == 0 and system is not none %}{% set content = " +
           (notation_.trims ? "(" + joined + ") | trim" : joined) + " %}{% else %}{% set content = " + plain +
           " %}{% endif %}";
  }

  std::string answer() const {
    const std::string_view end = notation_.end.empty() ? std::string_view(&kEndOfText, 1) : notation_.end;
    const auto joined = [](std::initializer_list<std::string_view> texts) {
      std::string text;
      for (const std::string_view each : texts) text += each;
      return expression(text);
    };
    return print(
        {joined({notation_.assistant, notation_.before}), "content", joined({notation_.after, end, notation_.close})});
  }

  const ChatNotation& notation_;
  std::string begin_;
};

}  // namespace

std::string chat_jinja(ChatFormat format, const Tokenizer& tokenizer) {
  return JinjaWriter(notation_of(format), tokenizer).write();
}

}  // namespace nought
