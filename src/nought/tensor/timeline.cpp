#include "nought/tensor/timeline.h"

#include <utility>

#include "nought/tensor/stream.h"

namespace nought {

void Timeline::follow(const std::shared_ptr<Stream>& compute) {
  compute_ = std::dynamic_pointer_cast<TimedStream>(compute);
}

std::vector<TraceEvent> Timeline::take() {
  std::vector<Timed> taken;
  {
    std::lock_guard lock(mutex_);
    taken = std::exchange(events_, {});
  }
  std::vector<TraceEvent> events;
  events.reserve(taken.size());
  for (Timed& each : taken) {
    if (each.begin) each.event.begin = each.begin->time();
    if (each.end) each.event.end = each.end->time();
    events.push_back(std::move(each.event));
  }
  return events;
}

void Timeline::add(TraceEvent event, std::shared_ptr<Moment> begin, std::shared_ptr<Moment> end) {
  std::lock_guard lock(mutex_);
  events_.push_back({std::move(event), std::move(begin), std::move(end)});
}

}  // namespace nought
