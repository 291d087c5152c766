// Grammar: a context-free language of bytes, as automata that call each other.
//
// It is made of expressions, from the inside out; a rule is an expression with a name, which may be called before it is
// defined. Goals: each beginning of a word that the automata take can be completed, as finish() removes what has no
// end. Non-goals: parse trees, left recursion.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace nought {

/// Unicode's last character.
inline constexpr char32_t kLastCodePoint = 0x10FFFF;

class Grammar {
 public:
  using Expression = int32_t;
  using Rule = int32_t;
  /// Code points from the first to the second one.
  using CodePoints = std::vector<std::pair<char32_t, char32_t>>;

  Expression text(std::string_view bytes);
  Expression bytes(uint8_t least, uint8_t most);
  /// The UTF-8 of one of these characters; surrogates have none.
  Expression characters(const CodePoints& ranges);
  /// The texts from `least` to `most`, which are as long, whose bytes are from `low` to `high` behind the first one
  /// that differs.
  Expression between(const std::string& least, const std::string& most, uint8_t low, uint8_t high);
  Expression sequence(std::vector<Expression> parts);
  /// One of them; without any, nothing matches.
  Expression choice(std::vector<Expression> parts);
  /// most < 0: without a limit.
  Expression repeat(Expression each, int64_t least, int64_t most = -1);
  Expression optional(Expression each) { return repeat(each, 0, 1); }
  /// The shortest text that ends with the marker, and any text that does not hold it.
  Expression until(std::string_view marker);
  Expression without(std::string_view marker);

  Rule declare();
  /// name: what messages call it, if it is not empty.
  void define(Rule rule, Expression expression, std::string name = {});
  Expression call(Rule rule);

  /// Makes the automata of the words that `start` has. ConfigError names a rule if it has none, if a rule calls itself
  /// before it takes a byte (left recursion), or if they become too large.
  void finish(Rule start);

  struct Edge {
    static constexpr int32_t kByte = -1, kNothing = -2;
    int32_t rule = kNothing;  // which it calls; kByte: it takes a byte from least to most; kNothing: it takes none
    uint8_t least = 0, most = 0;
    int32_t to = 0;
  };
  struct Node {
    std::vector<Edge> edges = {};
    bool ends = false;  // the rule may end here
  };
  // After finish().
  const std::vector<Node>& nodes() const { return nodes_; }
  int32_t start_of(Rule rule) const { return starts_[static_cast<size_t>(rule)]; }
  int32_t start() const { return start_of(start_); }

 private:
  enum class Kind : uint8_t { text, bytes, sequence, choice, repeat, until, without, call };
  struct Item {
    Kind kind;
    std::vector<Expression> parts = {};
    std::string text = {};
    int64_t least = 0, most = 0;
    int32_t depth = 0;  // how deep its parts lie within each other
  };
  Expression add(Item item);
  int32_t new_node();
  void link(int32_t from, Edge edge) { nodes_[static_cast<size_t>(from)].edges.push_back(edge); }
  /// Builds an expression behind a node. Returns the node behind it.
  int32_t build(Expression expression, int32_t from);
  int32_t build_repeat(const Item& item, int32_t from);
  int32_t build_marker(const Item& item, int32_t from);
  /// The nodes from which the end of their rule can be reached, or reached without a byte.
  std::vector<bool> nodes_that_end(bool with_bytes) const;
  void remove_endless();
  void refuse_left_recursion() const;
  /// By rule, those that it calls before it takes a byte.
  std::vector<std::vector<Rule>> first_calls() const;

  std::vector<Item> items_;
  std::vector<Expression> rules_;
  std::vector<std::string> names_;
  std::vector<Node> nodes_;
  std::vector<int32_t> starts_;
  int64_t built_ = 0;  // expressions, counting each place of one
  Rule start_ = 0;
};

/// The characters that are in none of the ranges.
Grammar::CodePoints complement(Grammar::CodePoints ranges);

}  // namespace nought
