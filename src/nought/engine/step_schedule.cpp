#include "nought/engine/step_schedule.h"

#include <algorithm>
#include <string_view>

#include "nought/base/error.h"

namespace nought {

namespace {

std::string_view short_name(Action action) {
  switch (action) {
    case Action::forward:
      return "F";
    case Action::backward:
      return "B";
    case Action::weight_gradients:
      return "W";
    case Action::receive_activation:
      return "RF";
    case Action::send_activation:
      return "SF";
    case Action::receive_gradient:
      return "RB";
    case Action::send_gradient:
      return "SB";
    case Action::reduce:
      return "reduce";
    case Action::update:
      return "update";
  }
  return "";
}

}  // namespace

std::string Instruction::str(int64_t chunks) const {
  const std::string_view name = short_name(action);
  if (!has_micro_batch(action)) return std::string(name);
  return chunks == 1 ? fmt::format("{}{}", name, micro_batch) : fmt::format("{}{}.{}", name, micro_batch, chunk);
}

int64_t StepSchedule::Use::end() const { return *std::max_element(places.begin(), places.end()); }

StepSchedule::StepSchedule(std::vector<Instruction> instructions, int64_t message_room)
    : instructions_(std::move(instructions)), message_room_(message_room) {
  count();
  bool reduced = false, updated = false;
  for (size_t place = 0; place < instructions_.size(); ++place) {
    const Instruction& each = instructions_[place];
    const bool possible = each.action == Action::update   ? reduced && !updated
                          : each.action == Action::reduce ? !reduced && all_walked_back()
                                                          : !reduced && fits(each);
    if (!possible) fail<Error>("schedule {}: {} cannot come there", *this, each.str(chunks_));
    if (has_micro_batch(each.action))
      uses_[index(each.micro_batch, each.chunk)].places[static_cast<size_t>(each.action)] = static_cast<int64_t>(place);
    reduced |= each.action == Action::reduce, updated |= each.action == Action::update;
  }
  check_whole();
  last_.assign(static_cast<size_t>(chunks_), 0);
  for (int64_t chunk = 0; chunk < chunks_; ++chunk)
    for (int64_t i = 0; i < micro_batches_; ++i) {
      int64_t& last = last_[static_cast<size_t>(chunk)];
      if (end_of(i, chunk) > end_of(last, chunk)) last = i;
    }
}

void StepSchedule::count() {
  for (const Instruction& each : instructions_) {
    if (!has_micro_batch(each.action)) continue;
    require(each.micro_batch >= 0 && each.chunk >= 0, "schedule {}: {} cannot come there", *this, each.str(chunks_));
    micro_batches_ = std::max(micro_batches_, each.micro_batch + 1);
    chunks_ = std::max(chunks_, each.chunk + 1);
  }
  const auto most = static_cast<int64_t>(instructions_.size());
  require(micro_batches_ <= most && chunks_ <= most + 1 && micro_batches_ * chunks_ <= most,
          "schedule {}: a micro-batch has no forward pass", *this);
  uses_.resize(static_cast<size_t>(micro_batches_ * chunks_));
}

size_t StepSchedule::index(int64_t micro_batch, int64_t chunk) const {
  return static_cast<size_t>(micro_batch * chunks_ + chunk);
}

bool StepSchedule::all_walked_back() const {
  const auto walked = [](const Use& use) { return use.place(Action::backward) >= 0; };
  return !uses_.empty() && std::all_of(uses_.begin(), uses_.end(), walked);
}

bool StepSchedule::fits(const Instruction& instruction) const {
  const int64_t i = instruction.micro_batch, chunk = instruction.chunk;
  const auto done = [&](Action action, int64_t of) { return has(action, i, of); };
  if (done(instruction.action, chunk)) return false;
  switch (instruction.action) {
    case Action::forward:
      return chunk == 0 || done(Action::forward, chunk - 1);
    case Action::backward:
      return done(Action::forward, chunk) && (chunk + 1 == chunks_ || done(Action::backward, chunk + 1));
    case Action::receive_activation:
      return !done(Action::forward, chunk);
    case Action::receive_gradient:
      return !done(Action::backward, chunk);
    case Action::send_activation:
      return done(Action::forward, chunk);
    case Action::weight_gradients:
    case Action::send_gradient:
      return done(Action::backward, chunk);
    case Action::reduce:
    case Action::update:
      break;
  }
  return false;
}

void StepSchedule::check_whole() const {
  for (const Use& use : uses_) {
    require(use.place(Action::forward) >= 0, "schedule {}: a micro-batch has no forward pass", *this);
    require(use.place(Action::backward) >= 0 || use.place(Action::receive_gradient) < 0,
            "schedule {}: a gradient is received that no backward pass reads", *this);
  }
}

int64_t StepSchedule::end_of(int64_t micro_batch) const {
  int64_t end = -1;
  for (int64_t chunk = 0; chunk < chunks_; ++chunk) end = std::max(end, end_of(micro_batch, chunk));
  return end;
}

int64_t StepSchedule::in_flight(int64_t chunk) const {
  int64_t alive = 0, most = 0;
  for (size_t place = 0; place < instructions_.size(); ++place) {
    const Instruction& each = instructions_[place];
    if (!has_micro_batch(each.action) || each.chunk != chunk) continue;
    if (each.action == Action::forward) most = std::max(most, ++alive);
    if (end_of(each.micro_batch, each.chunk) == static_cast<int64_t>(place)) --alive;
  }
  return most;
}

std::string StepSchedule::str() const {
  std::string text;
  for (const Instruction& each : instructions_) text += (text.empty() ? "" : " ") + each.str(chunks_);
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
