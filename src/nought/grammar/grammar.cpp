#include "nought/grammar/grammar.h"

#include <algorithm>
#include <array>
#include <utility>

#include "nought/base/error.h"
#include "nought/text/unicode.h"

namespace nought {

namespace {

constexpr size_t kMostNodes = size_t{1} << 18;
constexpr int32_t kDeepest = 1000;                // build() calls itself for a part
constexpr int64_t kMostBuilt = int64_t{1} << 22;  // counts of counts of nothing make no nodes

std::string utf8_of(char32_t code_point) {
  std::string bytes;
  append_utf8(bytes, code_point);
  return bytes;
}

}  // namespace

Grammar::Expression Grammar::add(Item item) {
  for (const Expression part : item.parts)
    item.depth = std::max(item.depth, items_[static_cast<size_t>(part)].depth + 1);
  require<ConfigError>(item.depth < kDeepest, "it has more than {} parts within each other", kDeepest);
  items_.push_back(std::move(item));
  return static_cast<Expression>(items_.size() - 1);
}

Grammar::Expression Grammar::text(std::string_view bytes) { return add({Kind::text, {}, std::string(bytes)}); }

Grammar::Expression Grammar::bytes(uint8_t least, uint8_t most) { return add({Kind::bytes, {}, {}, least, most}); }

Grammar::Expression Grammar::characters(const CodePoints& ranges) {
  // The last code points of each length, and those around the surrogates.
  constexpr std::array<std::pair<char32_t, char32_t>, 5> kLengths{
      {{0, 0x7F}, {0x80, 0x7FF}, {0x800, 0xD7FF}, {0xE000, 0xFFFF}, {0x10000, kLastCodePoint}}};
  std::vector<Expression> all;
  for (const auto& [first, last] : ranges)
    for (const auto& [least, most] : kLengths) {
      if (first > most || last < least) continue;
      all.push_back(between(utf8_of(std::max(first, least)), utf8_of(std::min(last, most)), 0x80, 0xBF));
    }
  return choice(std::move(all));
}

Grammar::Expression Grammar::between(const std::string& least, const std::string& most, uint8_t low, uint8_t high) {
  const size_t same =
      static_cast<size_t>(std::mismatch(least.begin(), least.end(), most.begin()).first - least.begin());
  if (same == least.size()) return text(least);
  const auto first = static_cast<uint8_t>(least[same]), last = static_cast<uint8_t>(most[same]);
  const std::string rest_least = least.substr(same + 1), rest_most = most.substr(same + 1);
  const std::string lowest(rest_least.size(), static_cast<char>(low)),
      highest(rest_most.size(), static_cast<char>(high));
  const Expression any = repeat(bytes(low, high), std::ssize(lowest), std::ssize(lowest));
  const bool whole_first = rest_least == lowest, whole_last = rest_most == highest;
  std::vector<Expression> ways;
  if (!whole_first) ways.push_back(sequence({bytes(first, first), between(rest_least, highest, low, high)}));
  const int from = whole_first ? first : first + 1, to = whole_last ? last : last - 1;
  if (from <= to) ways.push_back(sequence({bytes(static_cast<uint8_t>(from), static_cast<uint8_t>(to)), any}));
  if (!whole_last) ways.push_back(sequence({bytes(last, last), between(lowest, rest_most, low, high)}));
  return sequence({text(least.substr(0, same)), choice(std::move(ways))});
}

Grammar::Expression Grammar::sequence(std::vector<Expression> parts) { return add({Kind::sequence, std::move(parts)}); }

Grammar::Expression Grammar::choice(std::vector<Expression> parts) { return add({Kind::choice, std::move(parts)}); }

Grammar::Expression Grammar::repeat(Expression each, int64_t least, int64_t most) {
  return add({Kind::repeat, {each}, {}, least, most});
}

Grammar::Expression Grammar::until(std::string_view marker) { return add({Kind::until, {}, std::string(marker)}); }

Grammar::Expression Grammar::without(std::string_view marker) { return add({Kind::without, {}, std::string(marker)}); }

Grammar::Rule Grammar::declare() {
  rules_.push_back(-1);
  names_.emplace_back();
  return static_cast<Rule>(rules_.size() - 1);
}

void Grammar::define(Rule rule, Expression expression, std::string name) {
  rules_[static_cast<size_t>(rule)] = expression;
  names_[static_cast<size_t>(rule)] = std::move(name);
}

Grammar::Expression Grammar::call(Rule rule) { return add({Kind::call, {}, {}, rule}); }

int32_t Grammar::new_node() {
  require<ConfigError>(nodes_.size() < kMostNodes, "it becomes an automaton of more than {} nodes", kMostNodes);
  nodes_.emplace_back();
  return static_cast<int32_t>(nodes_.size() - 1);
}

int32_t Grammar::build(Expression expression, int32_t from) {
  const Item& item = items_[static_cast<size_t>(expression)];
  require<ConfigError>(++built_ < kMostBuilt, "it repeats more than {} parts", kMostBuilt);
  switch (item.kind) {
    case Kind::text:
      for (const char each : item.text) {
        const int32_t to = new_node();
        link(from, {Edge::kByte, static_cast<uint8_t>(each), static_cast<uint8_t>(each), to});
        from = to;
      }
      return from;
    case Kind::sequence:
      for (const Expression part : item.parts) from = build(part, from);
      return from;
    case Kind::choice: {
      const int32_t end = new_node();
      for (const Expression part : item.parts) link(build(part, from), {.to = end});
      return end;
    }
    case Kind::repeat:
      return build_repeat(item, from);
    case Kind::until:
    case Kind::without:
      return build_marker(item, from);
    case Kind::bytes:
    case Kind::call:
      break;
  }
  const int32_t to = new_node();
  if (item.kind == Kind::bytes) {
    link(from, {Edge::kByte, static_cast<uint8_t>(item.least), static_cast<uint8_t>(item.most), to});
  } else {
    link(from, {.rule = static_cast<int32_t>(item.least), .to = to});
  }
  return to;
}

int32_t Grammar::build_repeat(const Item& item, int32_t from) {
  for (int64_t i = 0; i < item.least; ++i) from = build(item.parts[0], from);
  if (item.most < 0) {
    // The node is new: what else begins at `from` must not be reached after a round.
    const int32_t round = new_node();
    link(from, {.to = round});
    link(build(item.parts[0], round), {.to = round});
    return round;
  }
  const int32_t end = new_node();
  for (int64_t i = item.least; i < item.most; ++i) {
    link(from, {.to = end});
    from = build(item.parts[0], from);
  }
  link(from, {.to = end});
  return end;
}

int32_t Grammar::build_marker(const Item& item, int32_t from) {
  const std::string& marker = item.text;
  std::vector<int32_t> places;  // by how many bytes of the marker have come
  for (size_t i = 0; i <= marker.size(); ++i) places.push_back(new_node());
  link(from, {.to = places[0]});
  const auto next = [&](size_t place, uint8_t byte) {
    const std::string come = marker.substr(0, place) + static_cast<char>(byte);
    size_t length = std::min(come.size(), marker.size());
    while (!come.ends_with(std::string_view(marker).substr(0, length))) --length;
    return length;
  };
  for (size_t place = 0; place < marker.size(); ++place)
    for (int byte = 0; byte < 256;) {
      const size_t to = next(place, static_cast<uint8_t>(byte));
      const int first = byte;
      while (byte < 256 && next(place, static_cast<uint8_t>(byte)) == to) ++byte;
      if (item.kind == Kind::until || to < marker.size())
        link(places[place], {Edge::kByte, static_cast<uint8_t>(first), static_cast<uint8_t>(byte - 1), places[to]});
    }
  if (item.kind == Kind::until) return places.back();
  const int32_t end = places.back();
  for (size_t place = 0; place < marker.size(); ++place) link(places[place], {.to = end});
  return end;
}

void Grammar::finish(Rule start) {
  start_ = start;
  nodes_.clear();
  starts_.clear();
  built_ = 0;
  for (const Expression expression : rules_) {
    require(expression >= 0, "a rule of a grammar is not defined");
    starts_.push_back(new_node());
    nodes_[static_cast<size_t>(build(expression, starts_.back()))].ends = true;
  }
  remove_endless();
  refuse_left_recursion();
  items_.clear();
}

std::vector<bool> Grammar::nodes_that_end(bool with_bytes) const {
  std::vector<bool> ending(nodes_.size());
  std::vector<std::vector<int32_t>> before(nodes_.size());  // nodes that may end once this one does
  for (size_t i = 0; i < nodes_.size(); ++i)
    for (const Edge& edge : nodes_[i].edges) {
      before[static_cast<size_t>(edge.to)].push_back(static_cast<int32_t>(i));
      if (edge.rule >= 0) before[static_cast<size_t>(start_of(edge.rule))].push_back(static_cast<int32_t>(i));
    }
  const auto leads_on = [&](const Edge& edge) {
    if (edge.rule == Edge::kByte && !with_bytes) return false;
    return ending[static_cast<size_t>(edge.to)] && (edge.rule < 0 || ending[static_cast<size_t>(start_of(edge.rule))]);
  };
  std::vector<int32_t> work;
  for (size_t i = 0; i < nodes_.size(); ++i)
    if (nodes_[i].ends) work.push_back(static_cast<int32_t>(i));
  while (!work.empty()) {
    const auto at = static_cast<size_t>(work.back());
    work.pop_back();
    const Node& node = nodes_[at];
    if (ending[at] || !(node.ends || std::any_of(node.edges.begin(), node.edges.end(), leads_on))) continue;
    ending[at] = true;
    work.insert(work.end(), before[at].begin(), before[at].end());
  }
  return ending;
}

void Grammar::remove_endless() {
  const std::vector<bool> live = nodes_that_end(/*with_bytes=*/true);
  const auto is_live = [&](Rule rule) { return live[static_cast<size_t>(start_of(rule))]; };
  if (!is_live(start_)) {
    std::string name;
    for (size_t rule = rules_.size(); rule-- > 0;)
      if (!names_[rule].empty() && !is_live(static_cast<Rule>(rule))) name = names_[rule] + ": ";
    throw ConfigError(name + "nothing finite satisfies it");
  }
  for (Node& node : nodes_)
    std::erase_if(node.edges, [&](const Edge& edge) {
      return !live[static_cast<size_t>(edge.to)] || (edge.rule >= 0 && !is_live(edge.rule));
    });
}

std::vector<std::vector<Grammar::Rule>> Grammar::first_calls() const {
  const std::vector<bool> empty = nodes_that_end(/*with_bytes=*/false);
  std::vector<std::vector<Rule>> calls(rules_.size());
  std::vector<bool> seen(nodes_.size());
  for (size_t rule = 0; rule < rules_.size(); ++rule) {
    std::vector<int32_t> work{starts_[rule]};
    while (!work.empty()) {
      const auto at = static_cast<size_t>(work.back());
      work.pop_back();
      if (seen[at]) continue;
      seen[at] = true;
      for (const Edge& edge : nodes_[at].edges) {
        if (edge.rule >= 0) calls[rule].push_back(edge.rule);
        // A rule that may be empty is passed over.
        if (edge.rule == Edge::kNothing || (edge.rule >= 0 && empty[static_cast<size_t>(start_of(edge.rule))]))
          work.push_back(edge.to);
      }
    }
  }
  return calls;
}

void Grammar::refuse_left_recursion() const {
  const std::vector<std::vector<Rule>> calls = first_calls();
  enum class Mark : uint8_t { fresh, open, done };
  std::vector<Mark> marks(rules_.size());
  for (size_t first = 0; first < rules_.size(); ++first) {
    std::vector<std::pair<size_t, size_t>> path{{first, 0}};  // rules, and how many calls of each were followed
    while (!path.empty()) {
      const auto [rule, followed] = path.back();
      if (marks[rule] == Mark::done || followed == calls[rule].size()) {
        marks[rule] = Mark::done;
        path.pop_back();
        continue;
      }
      marks[rule] = Mark::open;
      ++path.back().second;
      const auto next = static_cast<size_t>(calls[rule][followed]);
      if (marks[next] == Mark::open) {
        const std::string name = names_[next].empty() ? "a part of it" : names_[next] + ": it";
        throw ConfigError(name + " is itself before it takes any text (left recursion)");
      }
      path.emplace_back(next, 0);
    }
  }
}

Grammar::CodePoints complement(Grammar::CodePoints ranges) {
  std::sort(ranges.begin(), ranges.end());
  Grammar::CodePoints rest;
  char32_t from = 0;
  for (const auto& [first, last] : ranges) {
    if (first > from) rest.emplace_back(from, first - 1);
    from = std::max<char32_t>(from, last + 1);
  }
  if (from <= kLastCodePoint) rest.emplace_back(from, kLastCodePoint);
  return rest;
}

}  // namespace nought
