#include "nought/train/breakdown.h"

#include <algorithm>
#include <tuple>

namespace nought {

StepBreakdown breakdown_of(std::span<const TraceEvent> spans) {
  StepBreakdown result;
  std::vector<const TraceEvent*> waits, collectives;
  for (const TraceEvent& span : spans) {
    if (span.kind == TraceEventKind::phase && span.name == "forward") result.forward += span.seconds();
    if (span.kind == TraceEventKind::phase && span.name == "backward") result.backward += span.seconds();
    if (span.kind == TraceEventKind::phase && span.name == "optimizer") result.optimizer += span.seconds();
    if (span.kind == TraceEventKind::wait) waits.push_back(&span);
    if (span.kind == TraceEventKind::collective) collectives.push_back(&span), result.communication += span.seconds();
  }
  for (const TraceEvent* wait : waits) {
    for (const TraceEvent* collective : collectives) {
      const auto common = std::min(wait->end, collective->end) - std::max(wait->begin, collective->begin);
      result.exposed += std::max(0.0, std::chrono::duration<double>(common).count());
    }
  }
  return result;
}

std::vector<TraceEvent> collectives_of(std::span<const TraceEvent> spans, const std::vector<std::string>& only) {
  std::vector<TraceEvent> collectives;
  for (const TraceEvent& span : spans) {
    const bool wanted = only.empty() || std::find(only.begin(), only.end(), span.name) != only.end();
    if (span.kind == TraceEventKind::collective && wanted) collectives.push_back(span);
  }
  return collectives;
}

void add_collectives(std::span<const TraceEvent> collectives, std::vector<CollectiveTotal>& totals) {
  const auto key = [](const CollectiveTotal& total) { return std::tie(total.name, total.bytes); };
  for (const TraceEvent& span : collectives) {
    const CollectiveTotal one{span.name, span.bytes, 1, span.seconds()};
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
