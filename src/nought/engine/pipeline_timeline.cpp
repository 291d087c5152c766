#include "nought/engine/pipeline_timeline.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

#include "nought/base/error.h"
#include "nought/parallel/pipeline_ranks.h"

namespace nought {

namespace {

class Clockwork {
 public:
  Clockwork(const Pipeline& pipeline, int64_t micro_batches, std::span<const PassTimes> times, double transfer)
      : times_(times), transfer_(transfer) {
    stages_.ranks = static_cast<int>(pipeline.ranks);
    stages_.cut.chunks = static_cast<int>(pipeline.chunks);
    stages_.cut.v_shaped = pipeline.v_shaped();
    const int64_t count = pipeline.ranks * pipeline.chunks;
    require(times.size() == 1 || static_cast<int64_t>(times.size()) == count, "times of {} stages, not {}",
            times.size(), count);
    for (int64_t rank = 0; rank < pipeline.ranks; ++rank)
      ranks_.push_back({.schedule = pipeline_schedule(pipeline, rank, micro_batches)});
  }

  PipelineTimeline run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t rank = 0; rank < ranks_.size(); ++rank)
        while (advance(rank)) moved = true;
    }
    PipelineTimeline timeline{.chunks = stages_.cut.chunks, .ranks = {}};
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      const Rank& each = ranks_[rank];
      require(each.place == each.schedule.instructions().size(), "rank {} waits for ever at place {} of {}", rank,
              each.place, each.schedule);
      timeline.ranks.push_back(each.timed);
    }
    return timeline;
  }

 private:
  struct Rank {
    StepSchedule schedule;
    size_t place = 0;
    double now = 0;
    std::vector<TimedInstruction> timed = {};
  };
  /// What a pass makes for a stage: a micro-batch's activation, or its gradient.
  using Message = std::tuple<bool, int64_t, int>;

  /// Runs the next instruction of a rank. False if there is none, or if it waits for what nobody has made yet.
  bool advance(size_t index) {
    Rank& rank = ranks_[index];
    if (rank.place == rank.schedule.instructions().size()) return false;
    const Instruction& at = rank.schedule.instructions()[rank.place];
    if (is_pass(at.action)) {
      const std::optional<double> begin = begin_of(rank, at, stage_of(at, index));
      if (!begin) return false;
      rank.now = *begin + duration(rank, at, stage_of(at, index));
      rank.timed.push_back({at, *begin, rank.now});
      keep(rank, at, stage_of(at, index));
    } else if (sends(at.action)) {
      send(index, at);
    }
    ++rank.place;
    return true;
  }

  int stage_of(const Instruction& at, size_t rank) const {
    return stages_.stage_of(static_cast<int>(at.chunk), static_cast<int>(rank));
  }

  const PassTimes& times_of(int stage) const { return times_.size() == 1 ? times_[0] : times_[size_t(stage)]; }

  double duration(const Rank& rank, const Instruction& at, int stage) const {
    const PassTimes& times = times_of(stage);
    if (at.action == Action::forward) return times.forward;
    if (at.action == Action::weight_gradients) return times.weight_gradients;
    return times.backward + (rank.schedule.defers(at.micro_batch, at.chunk) ? 0 : times.weight_gradients);
  }

  /// When the pass can begin; nullopt: what it reads does not exist yet.
  std::optional<double> begin_of(const Rank& rank, const Instruction& at, int stage) const {
    const bool forward = at.action == Action::forward, backward = at.action == Action::backward;
    const bool reads = (forward && stage > 0) || (backward && stage + 1 < stages_.ranks * stages_.cut.chunks);
    if (!reads) return rank.now;
    const auto found = arrivals_.find({forward, at.micro_batch, stage});
    return found == arrivals_.end() ? std::nullopt : std::optional(std::max(rank.now, found->second));
  }

  /// What the next chunk of the same rank reads is there at once.
  void keep(const Rank& rank, const Instruction& at, int stage) {
    const auto sent = [&](Action action) { return rank.schedule.has(action, at.micro_batch, at.chunk); };
    if (at.action == Action::forward && !sent(Action::send_activation))
      arrivals_[{true, at.micro_batch, stage + 1}] = rank.now;
    if (at.action == Action::backward && !sent(Action::send_gradient))
      arrivals_[{false, at.micro_batch, stage - 1}] = rank.now;
  }

  void send(size_t from, const Instruction& at) {
    Rank& rank = ranks_[from];
    const bool activation = at.action == Action::send_activation;
    const int stage = stage_of(at, from) + (activation ? 1 : -1), to = stages_.rank_of(stage);
    double& free = wires_[{static_cast<int>(from), to}];
    const double begin = std::max(rank.now, free);
    free = begin + transfer_;
    arrivals_[{activation, at.micro_batch, stage}] = free;
    rank.timed.push_back({at, begin, free});
  }

  std::span<const PassTimes> times_;
  double transfer_;
  PipelineRanks stages_;
  std::vector<Rank> ranks_;
  std::map<Message, double> arrivals_;
  std::map<std::pair<int, int>, double> wires_;  // when they are free, by sender and receiver
};

}  // namespace

double PipelineTimeline::end() const {
  double end = 0;
  for (const auto& rank : ranks)
    for (const TimedInstruction& each : rank)
      if (is_pass(each.instruction.action)) end = std::max(end, each.end);
  return end;
}

double PipelineTimeline::busy(size_t rank) const {
  double busy = 0;
  for (const TimedInstruction& each : ranks.at(rank))
    if (is_pass(each.instruction.action)) busy += each.end - each.begin;
  return busy;
}

double PipelineTimeline::idle_share() const {
  double sum = 0;
  for (size_t rank = 0; rank < ranks.size(); ++rank) sum += busy(rank);
  return 1 - sum / end() / static_cast<double>(ranks.size());
}

PipelineTimeline pipeline_timeline(const Pipeline& pipeline, int64_t micro_batches, std::span<const PassTimes> times,
                                   double transfer) {
  return Clockwork(pipeline, micro_batches, times, transfer).run();
}

}  // namespace nought
