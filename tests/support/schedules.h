// Schedules from what they are written as.
#pragma once

#include <sstream>
#include <string>

#include "nought/train/step_schedule.h"

namespace nought::test {

/// "F0 F1 B0 W0 B1 reduce update"
inline StepSchedule schedule(const std::string& text) {
  std::vector<Instruction> list;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    if (word == "reduce") {
      list.push_back({Action::reduce});
    } else if (word == "update") {
      list.push_back({Action::update});
    } else {
      const Action action = word[0] == 'F'   ? Action::forward
                            : word[0] == 'B' ? Action::backward
                                             : Action::weight_gradients;
      list.push_back({action, std::stoi(word.substr(1))});
    }
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
