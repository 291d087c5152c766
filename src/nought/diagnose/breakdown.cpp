#include "nought/diagnose/breakdown.h"

#include <algorithm>
#include <tuple>

namespace nought {

namespace {

/// How long both events were under way.
double common_seconds(const TraceEvent& a, const TraceEvent& b) {
  const auto common = std::min(a.end, b.end) - std::max(a.begin, b.begin);
  return std::max(0.0, std::chrono::duration<double>(common).count());
}

}  // namespace

StepBreakdown breakdown_of(std::span<const TraceEvent> events) {
  StepBreakdown result;
  std::vector<const TraceEvent*> waits, collectives, forward, backward;
  for (const TraceEvent& event : events) {
    const bool phase = event.kind == TraceEventKind::phase;
    if (phase && event.name == "data") result.data += event.seconds();
    if (phase && event.name == "forward") forward.push_back(&event), result.forward += event.seconds();
    if (phase && event.name == "backward") backward.push_back(&event), result.backward += event.seconds();
    if (phase && event.name == "optimizer") result.optimizer += event.seconds();
    if (event.kind == TraceEventKind::wait) waits.push_back(&event);
    if (event.kind == TraceEventKind::collective)
      collectives.push_back(&event), result.communication += event.seconds();
  }
  for (const TraceEvent* wait : waits) {
    for (const TraceEvent* each : collectives) result.exposed += common_seconds(*wait, *each);
    for (const TraceEvent* each : forward) result.forward_waits += common_seconds(*wait, *each);
    for (const TraceEvent* each : backward) result.backward_waits += common_seconds(*wait, *each);
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
