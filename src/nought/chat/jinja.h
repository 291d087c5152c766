// jinja::Program: runs the Jinja programs by which public models write conversations.
//
// Design goals: what jinja2 gives in the environment of transformers' apply_chat_template (an immutable sandbox with
// trim_blocks, lstrip_blocks, loopcontrols and {% generation %}), to the byte. Programs come from strangers: they read
// and write no files, and their steps, memory and depth are bounded. Non-goals: whatever no public chat template has;
// it is refused by its name when the program is read, or by what it meets when it is run.
#pragma once

#include <ctime>
#include <functional>
#include <string>
#include <string_view>

#include "nought/base/json_fwd.h"
#include "nought/chat/jinja_value.h"

namespace nought::jinja {

struct Machine;

class Program {
 public:
  /// `name` stands in messages. ConfigError names the line, and what is malformed or not supported.
  Program(std::string name, std::string_view source);

  /// What the program writes, given a mapping. strftime_now() tells `now`. ConfigError for what fails, for what the
  /// program refuses by raise_exception(), and if it exceeds its bounds.
  Rendered render(const Value& variables, const std::tm& now) const;
  /// Whether it has {% generation %} blocks, which say what an assistant writes (kTarget).
  bool marks_targets() const { return marks_targets_; }
  const std::string& name() const { return name_; }

 private:
  std::string name_, source_;
  std::function<void(Machine&)> run_;
  bool marks_targets_ = false;
};

/// A JSON value, its strings with these flags. ConfigError if it is nested too deeply.
Value value_of(const OrderedJson& json, char32_t flags, int depth = 0);

}  // namespace nought::jinja
