#include "nought/train/breakdown.h"

#include <algorithm>
#include <tuple>

namespace nought {

StepBreakdown breakdown_of(std::span<const TraceEvent> events) {
  StepBreakdown result;
  std::vector<const TraceEvent*> waits, collectives;
  for (const TraceEvent& event : events) {
    if (event.kind == TraceEventKind::phase && event.name == "forward") result.forward += event.seconds();
    if (event.kind == TraceEventKind::phase && event.name == "backward") result.backward += event.seconds();
    if (event.kind == TraceEventKind::phase && event.name == "optimizer") result.optimizer += event.seconds();
    if (event.kind == TraceEventKind::wait) waits.push_back(&event);
    if (event.kind == TraceEventKind::collective)
      collectives.push_back(&event), result.communication += event.seconds();
  }
  for (const TraceEvent* wait : waits) {
    for (const TraceEvent* collective : collectives) {
      const auto common = std::min(wait->end, collective->end) - std::max(wait->begin, collective->begin);
      result.exposed += std::max(0.0, std::chrono::duration<double>(common).count());
    }
  }
  return result;
}

std::vector<TraceEvent> collectives_of(std::span<const TraceEvent> events, const std::vector<std::string>& only) {
  std::vector<TraceEvent> collectives;
  for (const TraceEvent& event : events) {
    const bool wanted = only.empty() || std::find(only.begin(), only.end(), event.name) != only.end();
    if (event.kind == TraceEventKind::collective && wanted) collectives.push_back(event);
  }
  return collectives;
}

void add_collectives(std::span<const TraceEvent> collectives, std::vector<CollectiveTotal>& totals) {
  const auto key = [](const CollectiveTotal& total) { return std::tie(total.name, total.bytes); };
  for (const TraceEvent& event : collectives) {
    const CollectiveTotal one{event.name, event.bytes, 1, event.seconds()};
    const auto at =
        std::lower_bound(totals.begin(), totals.end(), one,
                         [&](const CollectiveTotal& a, const CollectiveTotal& b) { return key(a) < key(b); });
    if (at != totals.end() && key(*at) == key(one)) {
      at->calls += 1, at->seconds += one.seconds;
    } else {
      totals.insert(at, one);
    }
  }
}

}  // namespace nought
