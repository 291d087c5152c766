// ParameterPatterns: which parameters a list of patterns of names chooses.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "nought/base/name_pattern.h"
#include "nought/nn/model.h"

namespace nought {

/// One list of patterns: regular expressions that are searched for in a parameter's name. What matches which pattern is
/// looked for in every parameter, so that none goes unused.
class ParameterPatterns {
 public:
  /// What the patterns may choose, and what is said of parameters that they match and may not: "NAME has no gradient".
  struct Choice {
    bool (*is_eligible)(ParameterRole role);
    std::string_view only;    // "what is never trained"
    std::string_view reason;  // "has no gradient"
  };
  /// key: what the list is called in messages. ConfigError for what is no regular expression, and for a pattern that
  /// matches nothing eligible: it names the nearest parameter.
  ParameterPatterns(std::string key, const std::vector<std::string>& patterns, const Model& model,
                    const Choice& choice);
  bool match(const Parameter& parameter) const;

 private:
  void add(const std::string& pattern, const Model& model, const Choice& choice);

  std::string key_;
  std::vector<NamePattern> compiled_;
};

}  // namespace nought
