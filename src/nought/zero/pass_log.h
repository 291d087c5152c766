// PassLog: which pass of a Unit runs now, and in which of its parts: for messages, flight records and trace events.
#pragma once

#include <string>
#include <vector>

#include "nought/autograd/unit.h"
#include "nought/comm/communicator.h"

namespace nought {

class PassLog {
 public:
  /// What is recorded goes where that of these ranks goes; they stay.
  explicit PassLog(Communicator& ranks) : ranks_(ranks) {}

  /// The pass of a Unit begins, and ends. Tiles are parts of their Units' passes.
  void begin(const Unit& unit, bool walking_back);
  void end(const Unit& unit) const;
  void enter_part(const char* name) { parts_.push_back({name, TraceEvent::Clock::now()}); }
  void leave_part();
  /// "block.3.attention, backward"
  std::string str() const;

 private:
  struct Part {
    const char* name;
    TraceEvent::Clock::time_point begin;
  };
  /// Null unless passes are recorded.
  Timeline* recording() const;

  Communicator& ranks_;
  const Unit* unit_ = nullptr;
  bool walking_back_ = false;
  TraceEvent::Clock::time_point begin_ = {};
  std::vector<Part> parts_;  // what the Unit is in, the innermost last
};

}  // namespace nought
