#include "nought/comm/flight_report.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include <fmt/format.h>

#include "nought/base/text.h"

namespace nought {
namespace {

using Ranks = std::span<const FlightSnapshot>;

/// The time between two readings of the clock, which a damaged file may hold anything for.
std::string describe_time(int64_t from, int64_t to) {
  const double seconds = std::max(static_cast<double>(to) - static_cast<double>(from), 0.0) * 1e-9;
  return seconds < 10 ? fmt::format("{:.1f}s", seconds) : format_duration(seconds);
}

std::string group_name(const FlightSnapshot& rank, uint64_t identity) {
  const FlightGroup* group = rank.group(identity);
  return group == nullptr ? "a group that has ended" : flight_text(group->name);
}

/// "forward of block.2, step 12".
std::string activity_of(const FlightSnapshot& rank) {
  std::string text = flight_text(rank.activity.phase);
  if (const std::string unit = flight_text(rank.activity.unit); !unit.empty()) text += fmt::format(" of {}", unit);
  if (rank.activity.step > 0) text += fmt::format(", step {}", rank.activity.step);
  return text;
}

std::string time_in_activity(const FlightSnapshot& rank) {
  return describe_time(rank.activity.since, rank.header.written);
}

std::string state_of(const FlightSnapshot& rank) {
  const std::string doing = activity_of(rank);
  switch (rank.header.state) {
    case RankState::dead:
      return "dead; its last work was " + doing;
    case RankState::stopped:
      return fmt::format("stopped by a signal, in {}, for {}", doing, time_in_activity(rank));
    case RankState::waits_for_disk:
      return fmt::format("waits for a disk, in {}, for {}", doing, time_in_activity(rank));
    case RankState::running:
      break;
  }
  const FlightCall* open = rank.open_call();
  if (open == nullptr) return fmt::format("in {}, for {}", doing, time_in_activity(rank));
  const int64_t until = open->ended > 0 ? open->ended : rank.header.written;
  return fmt::format("waits {} in {}; {}", describe_time(open->started, until), describe_call(rank, *open), doing);
}

std::string label_of(const FlightSnapshot& rank) { return fmt::format("rank {}", rank.header.rank); }

std::string place_of(const FlightSnapshot& rank) {
  return fmt::format("pid {} on {}", rank.header.pid, flight_text(rank.header.host));
}

bool works(const FlightSnapshot& rank) {
  return rank.header.state == RankState::running || rank.header.state == RankState::waits_for_disk;
}

std::vector<std::string> table_of(Ranks ranks) {
  size_t host_width = 4;
  for (const FlightSnapshot& rank : ranks) host_width = std::max(host_width, flight_text(rank.header.host).size());
  std::vector<std::string> lines{fmt::format("{:<5} {:<{}} {:<8} {}", "rank", "host", host_width, "pid", "state")};
  for (const FlightSnapshot& rank : ranks)
    lines.push_back(fmt::format("{:<5} {:<{}} {:<8} {}", rank.header.rank, flight_text(rank.header.host), host_width,
                                rank.header.pid, state_of(rank)));
  return lines;
}

/// The group's ranks among those that are known.
std::vector<const FlightSnapshot*> members_of(Ranks ranks, uint64_t identity) {
  std::vector<const FlightSnapshot*> members;
  for (const FlightSnapshot& rank : ranks)
    if (rank.group(identity) != nullptr) members.push_back(&rank);
  return members;
}

std::set<uint64_t> groups_of(Ranks ranks) {
  std::set<uint64_t> identities;
  for (const FlightSnapshot& rank : ranks)
    for (const FlightGroup& group : rank.groups) identities.insert(group.identity);
  return identities;
}

/// The first call of the group of which two ranks have different records.
std::string mismatch_in(Ranks ranks, uint64_t identity) {
  struct First {
    const FlightSnapshot* rank;
    const FlightCall* call;
  };
  std::map<uint64_t, First> by_sequence;
  std::optional<std::pair<First, First>> found;
  for (const FlightSnapshot& rank : ranks) {
    for (const FlightCall& call : rank.calls) {
      if (call.group != identity || call.message()) continue;
      const First first = by_sequence.try_emplace(call.sequence, First{&rank, &call}).first->second;
      if (first.call->matches(call) || (found && found->first.call->sequence <= call.sequence)) continue;
      found = {first, {&rank, &call}};
    }
  }
  if (!found) return "";
  const auto& [first, other] = *found;
  const auto issued = [](const First& of) {
    return fmt::format("{} issued {}{}", label_of(*of.rank), of.call->str(),
                       of.call->step > 0 ? fmt::format(" in step {}", of.call->step) : "");
  };
  return fmt::format("call {} of {} differs: {}, {}; ranks must issue the same calls", first.call->sequence,
                     group_name(*first.rank, identity), issued(first), issued(other));
}

/// What is known of one call of a group that waits.
void find_late_ranks(Ranks ranks, uint64_t identity, std::vector<std::string>& findings) {
  const std::vector<const FlightSnapshot*> members = members_of(ranks, identity);
  const FlightSnapshot* first = nullptr;  // the one that is farthest
  for (const FlightSnapshot* member : members) {
    const FlightGroup& group = *member->group(identity);
    if (group.started > group.ended && (first == nullptr || group.started > first->group(identity)->started))
      first = member;
  }
  if (first == nullptr) return;
  const uint64_t sequence = first->group(identity)->started;
  const FlightCall* call = first->collective(identity, sequence);
  const std::string what = call != nullptr ? describe_call(*first, *call)
                                           : fmt::format("call {} of {}", sequence, group_name(*first, identity));
  bool late = false;
  for (const FlightSnapshot* member : members) {
    const FlightGroup& group = *member->group(identity);
    if (group.started >= sequence) continue;
    late = true;
    if (!works(*member) || group.started > group.ended) continue;  // told already, or it waits too
    findings.push_back(fmt::format("{} ({}) {} {}: {}", label_of(*member), place_of(*member),
                                   group.submitted >= sequence ? "has issued, but not begun" : "has not come to", what,
                                   state_of(*member)));
  }
  const auto size = static_cast<size_t>(std::max(first->group(identity)->size, 0));
  const bool all_work = std::all_of(members.begin(), members.end(), [](const auto* member) { return works(*member); });
  if (!late && all_work && members.size() == size && mismatch_in(ranks, identity).empty())
    findings.push_back(
        fmt::format("every rank has come to {}: the network does not deliver its data, or the call takes "
                    "longer than the time-out (training.ddp_timeout)",
                    what));
}

void find_missing_ranks(Ranks ranks, std::vector<std::string>& findings) {
  int size = 0;
  std::set<int> known;
  for (const FlightSnapshot& rank : ranks) size = std::max(size, rank.header.size), known.insert(rank.header.rank);
  std::vector<int> missing;
  constexpr size_t kNamed = 16;
  for (int rank = 0; rank < size && missing.size() < kNamed; ++rank)
    if (!known.contains(rank)) missing.push_back(rank);
  if (missing.empty()) return;
  findings.push_back(fmt::format("nothing is known of {} of {} ranks: {}{}", static_cast<size_t>(size) - known.size(),
                                 size, fmt::join(missing, ", "), missing.size() == kNamed ? ", ..." : ""));
}

}  // namespace

std::string describe_call(const FlightSnapshot& rank, const FlightCall& call) {
  return fmt::format("{} {} of {} ({}{})", call.message() ? "message" : "call", call.sequence,
                     group_name(rank, call.group), call.str(),
                     call.step > 0 ? fmt::format(", step {}", call.step) : "");
}

std::string describe_mismatch(Ranks ranks) {
  for (const uint64_t identity : groups_of(ranks))
    if (std::string mismatch = mismatch_in(ranks, identity); !mismatch.empty()) return mismatch;
  return "";
}

FlightReport flight_report(std::vector<FlightSnapshot> ranks) {
  std::sort(ranks.begin(), ranks.end(),
            [](const FlightSnapshot& a, const FlightSnapshot& b) { return a.header.rank < b.header.rank; });
  FlightReport report{.table = table_of(ranks), .findings = {}};
  std::vector<std::string>& findings = report.findings;
  for (const uint64_t identity : groups_of(ranks))
    if (std::string mismatch = mismatch_in(ranks, identity); !mismatch.empty()) findings.push_back(std::move(mismatch));
  for (const FlightSnapshot& rank : ranks) {
    if (rank.header.state == RankState::dead)
      findings.push_back(
          fmt::format("{} ({}) is dead; its last work was {}", label_of(rank), place_of(rank), activity_of(rank)));
    if (rank.header.state == RankState::stopped)
      findings.push_back(fmt::format("{} ({}) is stopped by a signal, in {}; `kill -CONT {}` lets it go on",
                                     label_of(rank), place_of(rank), activity_of(rank), rank.header.pid));
  }
  for (const uint64_t identity : groups_of(ranks)) find_late_ranks(ranks, identity, findings);
  find_missing_ranks(ranks, findings);
  return report;
}

}  // namespace nought
