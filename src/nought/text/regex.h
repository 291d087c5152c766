// Regex: the regular expressions of tokenizers, with the meaning that they have in Rust and Oniguruma. PCRE2 matches
// them.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "nought/text/pool.h"

namespace nought {

class Regex {
 public:
  /// Compiles a pattern. ConfigError names the pattern and what is wrong with it.
  explicit Regex(std::string_view pattern);
  ~Regex();
  Regex(const Regex&) = delete;
  Regex& operator=(const Regex&) = delete;

  const std::string& pattern() const { return pattern_; }
  struct Match {
    size_t begin, end;
  };
  /// Appends all matches in `text`, from left to right, without empty ones. The text must be valid UTF-8. Thread safe.
  void find_all(std::string_view text, std::vector<Match>& matches) const;
  /// Whether there is a match in `text`, an empty one included. The same.
  bool is_in(std::string_view text) const;

 private:
  struct State;  // scratch space of one match
  struct Code;
  bool find(State& state, std::string_view text, size_t from, Match& match) const;

  std::string pattern_;
  std::unique_ptr<Code> code_;
  mutable ScratchPool<State> states_;
};

}  // namespace nought
