// Schedules from what they are written as.
#pragma once

#include <map>
#include <sstream>
#include <string>

#include "nought/engine/step_schedule.h"

namespace nought::test {

/// "F0 F1 B0 W0 B1 reduce update", "F0.0 F0.1 B0.1 B0.0", "RF0 F0 SF0 RB0 B0 SB0": as StepSchedule::str() writes it.
inline StepSchedule schedule(const std::string& text) {
  const std::map<std::string, Action> actions{{"F", Action::forward},          {"B", Action::backward},
                                              {"W", Action::weight_gradients}, {"RF", Action::receive_activation},
                                              {"SF", Action::send_activation}, {"RB", Action::receive_gradient},
                                              {"SB", Action::send_gradient},   {"reduce", Action::reduce},
                                              {"update", Action::update}};
  std::vector<Instruction> list;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const size_t digits = word.find_first_of("0123456789"), dot = word.find('.');
    Instruction each{actions.at(word.substr(0, digits))};
    if (digits != std::string::npos) each.micro_batch = std::stoi(word.substr(digits));
    if (dot != std::string::npos) each.chunk = std::stoi(word.substr(dot + 1));
    list.push_back(each);
  }
  return StepSchedule(std::move(list));
}

/// So many micro-batches in flight: F0 F1 B0 F2 B1 B2 for 2 of 3. With `deferred`, each B is followed by its W.
inline StepSchedule staggered(int64_t micro_batches, int64_t in_flight, bool deferred = false) {
  std::string text;
  for (int64_t i = 0; i < micro_batches + in_flight - 1; ++i) {
    const int64_t back = i - in_flight + 1;
    if (i < micro_batches) text += "F" + std::to_string(i) + " ";
    if (back < 0) continue;
    text += "B" + std::to_string(back) + " ";
    if (deferred) text += "W" + std::to_string(back) + " ";
  }
  return schedule(text + "reduce update");
}

/// Makes this one, whatever the number of micro-batches.
inline MakeSchedule always(const std::string& text) {
  return [text](int64_t) { return schedule(text); };
}

}  // namespace nought::test
