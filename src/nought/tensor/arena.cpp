#include "nought/tensor/arena.h"

#include <iterator>

namespace nought {

namespace {

/// Beyond this many the step goes on without: a run whose steps differ has no use for an arena.
constexpr int kMostPlans = 4;
constexpr int64_t kStepToWatch = 2;  // the first one also makes what stays
constexpr size_t kMostBlocks = 20000;

}  // namespace

bool StepArena::is_free(int64_t offset, int64_t bytes) const {
  const auto after = used_.lower_bound(offset);
  if (after != used_.end() && after->first < offset + bytes) return false;
  return after == used_.begin() || std::prev(after)->second <= offset;
}

StepArena::Place StepArena::take(int64_t bytes) {
  if (!in_step_ || bytes < kLeastBytes || std::this_thread::get_id() != thread_) return {};
  const auto index = seen_.size();
  seen_.push_back({bytes, clock_++, kForever});
  Place place{nullptr, {static_cast<int64_t>(index), step_, false}};
  if (index >= planned_.size()) return place;
  as_planned_ = as_planned_ && planned_[index].bytes == bytes;
  if (!as_planned_ || planned_[index].end == kForever || data_ == nullptr) return place;
  const int64_t offset = packing_.offsets[index];
  if (!is_free(offset, bytes)) return place;  // somebody holds on to a block for longer than in the watched step
  used_.emplace(offset, offset + bytes);
  place.data = data_ + offset;
  place.ticket.placed = true;
  return place;
}

void StepArena::give_back(const std::byte* data, const Ticket& ticket) {
  if (ticket.index < 0) return;
  if (ticket.placed) used_.erase(data - data_);
  if (in_step_ && ticket.step == step_) seen_[static_cast<size_t>(ticket.index)].end = clock_++;
}

void StepArena::begin_step() {
  thread_ = std::this_thread::get_id();
  ++step_;
  clock_ = 0;
  in_step_ = as_planned_ = true;
  seen_.clear();
}

std::optional<Packing> StepArena::end_step() {
  in_step_ = false;
  const bool fits = as_planned_ && seen_.size() <= planned_.size();
  if (step_ < kStepToWatch || fits || plans_ == kMostPlans || in_use() || seen_.size() > kMostBlocks) return {};
  ++plans_;
  planned_ = seen_;
  std::vector<Lifetime> passing = seen_;
  for (Lifetime& each : passing)
    if (each.end == kForever) each = {};  // takes no room
  return pack(passing);
}

std::vector<int64_t> StepArena::outlasting() const {
  std::vector<int64_t> sizes;
  for (const Lifetime& each : planned_)
    if (each.end == kForever) sizes.push_back(each.bytes);
  return sizes;
}

void StepArena::move_to(std::byte* data, Packing packing) {
  data_ = data;
  packing_ = std::move(packing);
}

}  // namespace nought
