// JsonValues: the expressions of JSON's own parts.
#pragma once

#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "nought/grammar/grammar.h"

namespace nought {

class JsonValues {
 public:
  using Expression = Grammar::Expression;
  explicit JsonValues(Grammar& grammar);

  Expression space() const { return space_; }
  /// A character of a string as JSON writes it: itself or its escape.
  Expression characters(const Grammar::CodePoints& ranges) const;
  Expression any_character() const { return character_; }
  Expression quoted(Expression inner) const;
  Expression any_string() const { return string_; }
  /// A string without escapes that is none of these.
  Expression other_string(const std::vector<std::string>& names) const;
  Expression number() const;
  /// Whole numbers of at most 18 digits within bounds.
  Expression integer(std::optional<int64_t> least, std::optional<int64_t> most) const;
  Expression enclosed(char begin, Expression inner, char end) const;
  Expression comma() const { return comma_; }
  Expression member(Expression key, Expression value) const;
  /// Any value and any object.
  Expression any() const { return any_; }
  Expression any_object() const { return object_; }

 private:
  Expression natural(int64_t least, int64_t most) const;
  Expression other_rest(const std::vector<std::string>& names, size_t at) const;

  Grammar& grammar_;
  Expression space_, comma_, character_, string_, any_, object_;
};

}  // namespace nought
