#include "nought/train/step_schedule.h"

#include <algorithm>

#include "nought/base/error.h"

namespace nought {

namespace {

std::string str_of(const Instruction& instruction) {
  switch (instruction.action) {
    case Action::forward:
      return fmt::format("F{}", instruction.micro_batch);
    case Action::backward:
      return fmt::format("B{}", instruction.micro_batch);
    case Action::weight_gradients:
      return fmt::format("W{}", instruction.micro_batch);
    case Action::reduce:
      return "reduce";
    case Action::update:
      return "update";
  }
  return "";
}

}  // namespace

StepSchedule::StepSchedule(std::vector<Instruction> instructions) : instructions_(std::move(instructions)) {
  int64_t most = -1;
  for (const Instruction& each : instructions_)
    if (has_micro_batch(each.action)) most = std::max(most, each.micro_batch);
  require(most < static_cast<int64_t>(instructions_.size()), "schedule {}: a micro-batch has no forward pass", *this);
  uses_.resize(static_cast<size_t>(most + 1));
  bool reduced = false, updated = false;
  for (size_t place = 0; place < instructions_.size(); ++place) {
    const Instruction& each = instructions_[place];
    const bool possible = each.action == Action::update   ? reduced && !updated
                          : each.action == Action::reduce ? !reduced && all_walked_back()
                                                          : !reduced && note(each, static_cast<int64_t>(place));
    if (!possible) fail<Error>("schedule {}: {} cannot come there", *this, str_of(each));
    reduced |= each.action == Action::reduce, updated |= each.action == Action::update;
  }
  for (size_t i = 0; i < uses_.size(); ++i) {
    require(uses_[i].forward >= 0, "schedule {}: a micro-batch has no forward pass", *this);
    if (uses_[i].end() > uses_[static_cast<size_t>(last_)].end()) last_ = static_cast<int64_t>(i);
  }
}

bool StepSchedule::all_walked_back() const {
  return !uses_.empty() && std::all_of(uses_.begin(), uses_.end(), [](const Use& use) { return use.backward >= 0; });
}

bool StepSchedule::note(const Instruction& instruction, int64_t place) {
  if (instruction.micro_batch < 0) return false;
  Use& use = uses_[static_cast<size_t>(instruction.micro_batch)];
  int64_t& mine = instruction.action == Action::forward    ? use.forward
                  : instruction.action == Action::backward ? use.backward
                                                           : use.weight_gradients;
  const bool comes_first = instruction.action == Action::forward,
             comes_behind = instruction.action == Action::backward ? use.forward >= 0 : use.backward >= 0;
  if (mine >= 0 || !(comes_first || comes_behind)) return false;
  mine = place;
  return true;
}

int64_t StepSchedule::in_flight() const {
  int64_t most = 0;
  for (const Use& begun : uses_) {  // the number rises at a forward alone
    int64_t alive = 0;
    for (int64_t i = 0; i < micro_batches(); ++i)
      alive += use_of(i).forward <= begun.forward && begun.forward <= end_of(i);
    most = std::max(most, alive);
  }
  return most;
}

std::string StepSchedule::str() const {
  std::string text;
  for (const Instruction& each : instructions_) text += (text.empty() ? "" : " ") + str_of(each);
  return text;
}

StepSchedule plain_schedule(int64_t micro_batches) {
  std::vector<Instruction> list;
  for (int64_t i = 0; i < micro_batches; ++i) {
    list.push_back({Action::forward, i});
    list.push_back({Action::backward, i});
  }
  list.push_back({Action::reduce});
  list.push_back({Action::update});
  return StepSchedule(std::move(list));
}

StepSchedule evaluation_schedule(int64_t micro_batches) {
  std::vector<Instruction> list;
  for (int64_t i = 0; i < micro_batches; ++i) list.push_back({Action::forward, i});
  return StepSchedule(std::move(list));
}

}  // namespace nought
