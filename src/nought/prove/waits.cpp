#include "nought/prove/waits.h"

#include <algorithm>
#include <compare>
#include <deque>
#include <map>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "nought/prove/matching.h"

namespace nought {

namespace {

/// A collective, or a message: what ends when all that take part have come to it.
struct Meeting {
  std::vector<std::pair<int, int>> parts;  // class and call
  int missing = 0;                         // that have not come
  bool ended() const { return missing == 0; }
};

/// What runs in order in a group: its calls, and the ends of other groups' calls that they wait for.
struct Task {
  int call = 0;
  bool fence = false;  // waits for the call, which is another group's
};

/// The host of a class, or the stream of one of its groups.
struct Actor {
  int rank_class = 0;
  int group = -1;  // -1: the host
  auto operator<=>(const Actor&) const = default;
};

class Replay {
 public:
  explicit Replay(const RecordedRanks& ranks) : ranks_(ranks), unions_(ranks) {
    for (int each = 0; each < classes(); ++each) list_meetings(each);
    for (const Transcript& of : ranks_.transcripts) {
      next_.push_back(0);
      streams_.emplace_back(of.groups.size());
      came_.emplace_back(of.calls.size(), false);
    }
  }

  WaitGraph run() {
    WaitGraph graph;
    for (const Transcript& of : ranks_.transcripts) {
      graph.calls += std::ssize(of.calls);
      graph.waits += std::count_if(of.events.begin(), of.events.end(), [](const TranscriptEvent& event) {
        return event.kind != TranscriptEvent::Kind::call;
      });
    }
    for (bool moves = true; moves;) {
      moves = false;
      for (int each = 0; each < classes(); ++each) moves |= advance(each);
    }
    graph.circle = shortest_circle();
    return graph;
  }

 private:
  int classes() const { return static_cast<int>(ranks_.transcripts.size()); }
  const Transcript& transcript(int of) const { return ranks_.transcripts[as_index(of)]; }
  const TranscriptCall& call(int of, int number) const { return transcript(of).calls[as_index(number)]; }

  void list_meetings(int of) {
    const Transcript& each = transcript(of);
    meeting_of_.emplace_back();
    posted_.emplace_back();
    // union, from, to, tag; a collective has no places
    std::map<std::tuple<int, int, int, int>, int> counts;
    int posted = -1;
    for (int i = 0; i < static_cast<int>(each.calls.size()); ++i) {
      const TranscriptCall& one = each.calls[as_index(i)];
      int from = -1, to = -1;
      if (one.message()) {
        from = each.place_in(one.group), to = one.peer;
        if (one.kind == Collective::recv) std::swap(from, to);
      }
      const std::tuple key{unions_.of(of, one.group), from, to, one.message() ? one.tag : -1};
      const auto [known, added] =
          numbers_.emplace(std::tuple_cat(key, std::tuple(counts[key]++)), static_cast<int>(meetings_.size()));
      if (added) meetings_.emplace_back();
      Meeting& meeting = meetings_[as_index(known->second)];
      meeting.parts.emplace_back(of, i);
      ++meeting.missing;
      meeting_of_.back().push_back(known->second);
      posted_.back().push_back(one.ends_posted ? posted : -1);
      if (one.posted) posted = i;
    }
  }

  const Meeting& meeting(int of, int number) const {
    return meetings_[as_index(meeting_of_[as_index(of)][as_index(number)])];
  }
  bool ended(int of, int number) const {
    const int posted = posted_[as_index(of)][as_index(number)];
    return meeting(of, number).ended() && (posted < 0 || meeting(of, posted).ended());
  }

  bool advance(int of) {
    bool moved = false;
    const Transcript& each = transcript(of);
    size_t& next = next_[as_index(of)];
    for (; next < each.events.size(); ++next) {
      const TranscriptEvent& event = each.events[next];
      if (event.kind == TranscriptEvent::Kind::wait) {
        for (auto group = streams_[as_index(of)].begin(); group != streams_[as_index(of)].end(); ++group)
          moved |= drain(of, *group);
        if (!ended(of, event.call)) break;
      } else {
        const bool fence = event.kind == TranscriptEvent::Kind::follow;
        streams_[as_index(of)][as_index(fence ? event.group : each.calls[as_index(event.call)].group)].push_back(
            {event.call, fence});
      }
      moved = true;
    }
    for (std::deque<Task>& stream : streams_[as_index(of)]) moved |= drain(of, stream);
    return moved;
  }

  bool drain(int of, std::deque<Task>& stream) {
    bool moved = false;
    while (!stream.empty()) {
      const Task task = stream.front();
      if (!task.fence && !came_[as_index(of)][as_index(task.call)]) {
        came_[as_index(of)][as_index(task.call)] = true, moved = true;
        --meetings_[as_index(meeting_of_[as_index(of)][as_index(task.call)])].missing;
      }
      if (task.fence || !call(of, task.call).posted)
        if (!ended(of, task.call)) break;
      stream.pop_front();
      moved = true;
    }
    return moved;
  }

  /// What an actor that stands waits for, and for which call; nothing if it has come to its end.
  std::optional<int> awaited(const Actor& actor) const {
    const int of = actor.rank_class;
    if (actor.group >= 0) {
      const std::deque<Task>& stream = streams_[as_index(of)][as_index(actor.group)];
      return stream.empty() ? std::nullopt : std::optional(stream.front().call);
    }
    const Transcript& each = transcript(of);
    return next_[as_index(of)] == each.events.size() ? std::nullopt
                                                     : std::optional(each.events[next_[as_index(of)]].call);
  }

  /// Who has to go on before a call of this class ends.
  std::vector<Actor> holders(const Actor& actor, int number) const {
    const int of = actor.rank_class, group = call(of, number).group;
    if (actor.group != group) return {{of, group}};  // its own stream has not come so far
    std::vector<Actor> all;
    const int posted = posted_[as_index(of)][as_index(number)];
    for (const int which : {number, posted}) {
      if (which < 0 || meeting(of, which).ended()) continue;
      for (const auto& [other, part] : meeting(of, which).parts)
        if (!came_[as_index(other)][as_index(part)]) {
          const std::deque<Task>& stream = streams_[as_index(other)][as_index(group)];
          all.push_back({other, stream.empty() ? -1 : group});
        }
    }
    return all;
  }

  std::string str(const Actor& actor) const {
    const Transcript& each = transcript(actor.rank_class);
    const std::optional<int> call_number = awaited(actor);
    const std::string who = actor.group < 0 ? fmt::format("rank {}", each.rank)
                                            : fmt::format("the stream of {} of rank {}",
                                                          each.groups[as_index(actor.group)].name, each.rank);
    return call_number ? fmt::format("{} waits for {}", who, each.str(each.calls[as_index(*call_number)]))
                       : fmt::format("{} has come to its end", who);
  }

  /// Breadth first; empty if what this actor waits for never comes back to it.
  std::vector<Actor> shortest_circle_from(const Actor& start) const {
    std::map<Actor, Actor> before;
    for (std::deque<Actor> queue{start}; !queue.empty(); queue.pop_front()) {
      const Actor here = queue.front();
      const std::optional<int> number = awaited(here);
      if (!number) continue;
      for (const Actor& next : holders(here, *number)) {
        if (next == start) {
          std::vector<Actor> circle{here};
          while (circle.back() != start) circle.push_back(before.at(circle.back()));
          std::reverse(circle.begin(), circle.end());
          return circle;
        }
        if (before.emplace(next, here).second) queue.push_back(next);
      }
    }
    return {};
  }

  std::optional<Counterexample> shortest_circle() const {
    std::vector<Actor> standing, shortest;
    for (int of = 0; of < classes(); ++of)
      for (int group = -1; group < static_cast<int>(streams_[as_index(of)].size()); ++group)
        if (awaited({of, group})) standing.push_back({of, group});
    if (standing.empty()) return std::nullopt;
    for (const Actor& start : standing) {
      const std::vector<Actor> circle = shortest_circle_from(start);
      if (!circle.empty() && (shortest.empty() || circle.size() < shortest.size())) shortest = circle;
    }
    const bool is_circle = !shortest.empty();
    if (!is_circle) shortest.push_back(standing.front());
    std::vector<std::string> steps;
    for (const Actor& each : shortest) steps.push_back(str(each));
    return Counterexample{transcript(shortest.front().rank_class).rank,
                          fmt::format("{}: {}", is_circle ? "ranks wait in a circle" : "a rank waits for ever",
                                      fmt::join(steps, "; that needs: "))};
  }

  const RecordedRanks& ranks_;
  GroupUnions unions_;
  std::vector<Meeting> meetings_;
  std::map<std::tuple<int, int, int, int, int>, int> numbers_;
  std::vector<std::vector<int>> meeting_of_;  // by class and call
  std::vector<std::vector<int>> posted_;      // the posted send that a recv ends with, or -1
  std::vector<size_t> next_;                  // event of each class
  std::vector<std::vector<std::deque<Task>>> streams_;
  std::vector<std::vector<bool>> came_;  // by class and call: it has come to its turn
};

}  // namespace

WaitGraph follow_waits(const RecordedRanks& ranks) { return Replay(ranks).run(); }

}  // namespace nought
