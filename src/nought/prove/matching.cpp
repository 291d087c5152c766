#include "nought/prove/matching.h"

#include <algorithm>
#include <numeric>
#include <set>

#include <fmt/format.h>

#include "nought/base/text.h"

namespace nought {

namespace {

/// The collectives of a group, or its messages one way, as places in Transcript::calls.
using Calls = std::vector<int>;

template <class Wanted>
Calls calls_of(const Transcript& transcript, int group, const Wanted& wanted) {
  Calls calls;
  for (int i = 0; i < static_cast<int>(transcript.calls.size()); ++i)
    if (const TranscriptCall& call = transcript.calls[as_index(i)]; call.group == group && wanted(call))
      calls.push_back(i);
  return calls;
}

Calls collectives_of(const Transcript& transcript, int group) {
  return calls_of(transcript, group, [](const TranscriptCall& call) { return !call.message(); });
}

Calls messages_of(const Transcript& transcript, int group, Collective::Kind kind, int peer, int tag) {
  return calls_of(transcript, group, [&](const TranscriptCall& call) {
    return call.kind == kind && call.peer == peer && call.tag == tag;
  });
}

/// Two ranks' calls, one beside the other.
class Pair {
 public:
  Pair(const Transcript& a, Calls of_a, const Transcript& b, Calls of_b)
      : a_(a), b_(b), of_a_(std::move(of_a)), of_b_(std::move(of_b)) {}

  /// The first place where they differ; nothing if they are alike. Where two calls of one kind and size are issued at
  /// other places of the run, a call before was dropped or added: then that is the place, if a later call tells.
  std::optional<size_t> first_difference() const {
    const size_t common = std::min(of_a_.size(), of_b_.size());
    size_t found = common;
    for (size_t i = 0; i < common && found == common; ++i)
      if (!alike(i)) found = i;
    if (found == common && of_a_.size() == of_b_.size()) return std::nullopt;
    if (a_.stage == b_.stage)
      for (size_t i = 0; i < found; ++i)
        if (a_.place_of(*call_a(i)) != b_.place_of(*call_b(i))) return i;
    return found;
  }
  const TranscriptCall* call_a(size_t i) const { return i < of_a_.size() ? &a_.calls[as_index(of_a_[i])] : nullptr; }
  const TranscriptCall* call_b(size_t i) const { return i < of_b_.size() ? &b_.calls[as_index(of_b_[i])] : nullptr; }

 private:
  bool alike(size_t i) const {
    const TranscriptCall &x = *call_a(i), &y = *call_b(i);
    const TranscriptPlace &here = a_.place_of(x), &there = b_.place_of(y);
    const bool same_call = x.message() || (x.kind == y.kind && x.op == y.op && x.peer == y.peer);
    return same_call && x.dtype == y.dtype && x.bytes == y.bytes && here.part == there.part &&
           here.subject == there.subject;
  }

  const Transcript &a_, &b_;
  Calls of_a_, of_b_;
};

std::string said(const Transcript& of, const TranscriptCall* call, const char* nothing) {
  return call == nullptr ? fmt::format("rank {} {}", of.rank, nothing)
                         : fmt::format("rank {} issues {}", of.rank, of.str(*call));
}

std::optional<Counterexample> compare_collectives(const RecordedRanks& ranks, const GroupUnions& unions, int number) {
  const std::vector<int>& classes = unions.classes(number);
  const int group = unions.group(number);
  const Transcript& first = ranks.transcripts[as_index(classes.front())];
  const Calls of_first = collectives_of(first, group);
  std::optional<Counterexample> found;
  size_t earliest = 0, differing = 0;
  for (size_t i = 1; i < classes.size(); ++i) {
    const Transcript& other = ranks.transcripts[as_index(classes[i])];
    const Pair pair(first, of_first, other, collectives_of(other, group));
    const std::optional<size_t> place = pair.first_difference();
    if (!place) continue;
    ++differing;
    if (found && earliest <= *place) continue;
    earliest = *place;
    found = Counterexample{
        other.rank,
        fmt::format("call {} of {} differs: {}, {}", *place + 1, first.groups[as_index(group)].name,
                    said(other, pair.call_b(*place), "issues none"), said(first, pair.call_a(*place), "issues none"))};
  }
  // One against all others: it is the first that differs.
  if (found && differing > 1 && differing + 1 == classes.size()) found->rank = first.rank;
  return found;
}

/// Messages between the members of one rank's group.
std::optional<Counterexample> compare_messages(const RecordedRanks& ranks, const Transcript& of, int group) {
  const std::vector<int>& members = of.groups[as_index(group)].ranks;
  std::set<std::pair<int, int>> lines;  // peer, tag
  for (const TranscriptCall& call : of.calls)
    if (call.group == group && call.message()) lines.insert({call.peer, call.tag});
  const int here = of.place_in(group);
  for (const auto& [peer, tag] : lines) {
    const Transcript& other = ranks.of_rank(members[as_index(peer)]);
    for (const bool sends : {true, false}) {
      const Pair pair(of, messages_of(of, group, sends ? Collective::send : Collective::recv, peer, tag), other,
                      messages_of(other, group, sends ? Collective::recv : Collective::send, here, tag));
      const std::optional<size_t> place = pair.first_difference();
      if (!place) continue;
      const TranscriptCall *mine = pair.call_a(*place), *theirs = pair.call_b(*place);
      const char* without = sends ? "does not receive it" : "does not send it";
      const char* unasked = sends ? "does not send it" : "does not receive it";
      const int missing = mine == nullptr ? of.rank : other.rank;
      return Counterexample{
          missing, fmt::format("message {} of {} does not meet: {}, {}", *place + 1, of.groups[as_index(group)].name,
                               said(of, mine, unasked), said(other, theirs, without))};
    }
  }
  return std::nullopt;
}

bool has_messages(const Transcript& of, int group) {
  return std::any_of(of.calls.begin(), of.calls.end(),
                     [&](const TranscriptCall& call) { return call.group == group && call.message(); });
}

std::optional<Counterexample> compare_groups(const RecordedRanks& ranks) {
  const Transcript& first = ranks.transcripts.front();
  for (const Transcript& each : ranks.transcripts)
    if (each.groups.size() != first.groups.size())
      return Counterexample{each.rank, fmt::format("rank {} makes {} groups, rank {} makes {}", each.rank,
                                                   each.groups.size(), first.rank, first.groups.size())};
  return std::nullopt;
}

}  // namespace

GroupUnions::GroupUnions(const RecordedRanks& ranks) {
  const size_t groups = ranks.transcripts.front().groups.size(), classes = ranks.transcripts.size();
  unions_.resize(classes, std::vector<int>(groups));
  for (size_t group = 0; group < groups; ++group) {
    std::vector<int> above(classes);
    std::iota(above.begin(), above.end(), 0);
    const auto root = [&](int of) {
      while (above[as_index(of)] != of) of = above[as_index(of)] = above[as_index(above[as_index(of)])];
      return of;
    };
    for (size_t each = 0; each < classes; ++each)
      for (const int member : ranks.transcripts[each].groups[group].ranks)
        above[as_index(root(ranks.class_of[as_index(member)]))] = root(static_cast<int>(each));
    std::vector<int> number(classes, -1);
    for (size_t each = 0; each < classes; ++each) {
      int& of_root = number[as_index(root(static_cast<int>(each)))];
      if (of_root < 0) {
        of_root = count();
        classes_.emplace_back(), groups_.push_back(static_cast<int>(group));
      }
      unions_[each][group] = of_root;
      classes_[as_index(of_root)].push_back(static_cast<int>(each));
    }
  }
}

std::optional<Counterexample> find_mismatch(const RecordedRanks& ranks) {
  if (auto found = compare_groups(ranks)) return found;
  const GroupUnions unions(ranks);
  for (int number = 0; number < unions.count(); ++number)
    if (auto found = compare_collectives(ranks, unions, number)) return found;
  for (const Transcript& each : ranks.transcripts)
    for (int group = 0; group < static_cast<int>(each.groups.size()); ++group)
      if (has_messages(each, group))
        if (auto found = compare_messages(ranks, each, group)) return found;
  return std::nullopt;
}

}  // namespace nought
