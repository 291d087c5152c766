#include "nought/zero/pass_log.h"

#include <fmt/core.h>

#include "nought/comm/flight_recorder.h"

namespace nought {

void PassLog::begin(const Unit& unit, bool walking_back) {
  if (unit.tile_of() != nullptr) return;
  unit_ = &unit, walking_back_ = walking_back, begin_ = TraceEvent::Clock::now();
  parts_.clear();  // what a pass that was given up has left
  if (FlightRecorder* recorder = ranks_.recorder()) recorder->set_unit(unit.name());
}

void PassLog::end(const Unit& unit) const {
  if (unit.tile_of() != nullptr) return;
  if (Timeline* timeline = recording()) timeline->add({TraceEventKind::unit, str(), begin_, TraceEvent::Clock::now()});
}

void PassLog::leave_part() {
  const auto [name, begin] = parts_.back();
  parts_.pop_back();
  if (Timeline* timeline = recording()) timeline->add({TraceEventKind::part, name, begin, TraceEvent::Clock::now()});
}

Timeline* PassLog::recording() const {
  Timeline* timeline = ranks_.timeline();
  return timeline != nullptr && timeline->recording() ? timeline : nullptr;
}

std::string PassLog::str() const {
  std::string where = unit_ == nullptr ? "before the first Unit" : unit_->name();
  for (const Part& part : parts_) where += fmt::format(".{}", part.name);
  return fmt::format("{}, {}", where, walking_back_ ? "backward" : "forward");
}

}  // namespace nought
