#include "nought/engine/pipeline_schedules.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "nought/base/error.h"
#include "nought/parallel/pipeline_ranks.h"

namespace nought {

namespace {

using PassList = std::vector<Instruction>;

int64_t micro_batches_per_round(const Pipeline& pipeline, int64_t micro_batches) {
  return micro_batches / std::max<int64_t>(1, micro_batches / pipeline.ranks);
}

/// The order in which a rank forwards: for each round of micro-batches, for each chunk, for each micro-batch of the
/// round. The last round may be shorter.
PassList in_rounds(int64_t micro_batches, int64_t round, int64_t chunks) {
  PassList order;
  for (int64_t begin = 0; begin < micro_batches; begin += round)
    for (int64_t chunk = 0; chunk < chunks; ++chunk)
      for (int64_t i = begin; i < std::min(begin + round, micro_batches); ++i)
        order.push_back({Action::forward, i, chunk});
  return order;
}

/// Forward passes in their order, `warmup` of them before the rest alternate with the backward passes, whose order is
/// that of the forwards with the chunks reversed. weights_behind: the weight gradients of a pass are formed after so
/// many further backward passes; nullopt: by its backward pass.
PassList alternate(const PassList& forwards, int64_t warmup, int64_t chunks,
                   std::optional<int64_t> weights_behind = {}) {
  PassList list;
  const auto count = static_cast<int64_t>(forwards.size());
  const auto back = [&](Action action, int64_t place) {
    const Instruction& forward = forwards[static_cast<size_t>(place)];
    list.push_back({action, forward.micro_batch, chunks - 1 - forward.chunk});
  };
  for (int64_t step = 0; step < count + warmup; ++step) {
    if (step < count) list.push_back(forwards[static_cast<size_t>(step)]);
    const int64_t backward = step - warmup;
    if (backward < 0) continue;
    back(Action::backward, backward);
    if (weights_behind && backward >= *weights_behind) back(Action::weight_gradients, backward - *weights_behind);
  }
  if (weights_behind)
    for (int64_t i = std::max<int64_t>(0, count - *weights_behind); i < count; ++i) back(Action::weight_gradients, i);
  return list;
}

/// The passes of ZB-V on a rank, which are filled by 2 ranks - 1 micro-batches or more. With fewer, those that there
/// are not are left out.
class ZeroBubbleV {
 public:
  ZeroBubbleV(int64_t ranks, int64_t rank, int64_t micro_batches)
      : ranks_(ranks), rank_(rank), wanted_(micro_batches), count_(std::max(micro_batches, 2 * ranks - 1)) {}

  PassList make() {
    fill();
    for (int64_t i = 0; i < count_ - warmup(); ++i) {
      add(Action::forward, 0);
      add_backward(0);
      add(Action::forward, 1);
      add_backward(1);
    }
    drain();
    return std::move(list_);
  }

 private:
  /// The micro-batches that chunk 0 has forwarded when its first backward pass begins.
  int64_t warmup() const { return 2 * ranks_ - 1 - rank_; }

  void fill() {
    for (int64_t i = 0; i < 2 * (ranks_ - rank_) - 1; ++i) add(Action::forward, 0);
    for (int64_t i = 0; i < rank_; ++i) {
      add(Action::forward, 1);
      add(Action::forward, 0);
    }
    for (int64_t i = 0; i < ranks_ - rank_; ++i) {
      add(Action::forward, 1);
      add_backward(1);
    }
  }

  void drain() {
    // Chunk 1 forwards what chunk 0 has forwarded before.
    for (int64_t left = warmup() - ranks_; left > 0; --left) {
      add_backward(0);
      add(Action::forward, 1);
      add_backward(1);
    }
    for (int64_t i = 0; i < rank_; ++i) {
      add(Action::backward, 0);
      add(Action::backward, 1);
    }
    for (int64_t i = 0; i < ranks_ - rank_; ++i) add_backward(0);
    while (done(Action::weight_gradients, 1) < count_) add(Action::weight_gradients, 1);
    while (done(Action::weight_gradients, 0) < count_) add(Action::weight_gradients, 0);
  }

  void add(Action action, int64_t chunk) {
    const int64_t micro_batch = done(action, chunk)++;
    if (micro_batch < wanted_) list_.push_back({action, micro_batch, chunk});
  }
  /// A backward pass, and at once the weight gradients whose turn it is.
  void add_backward(int64_t chunk) {
    add(Action::backward, chunk);
    add(Action::weight_gradients, chunk);
  }
  int64_t& done(Action action, int64_t chunk) { return done_[static_cast<size_t>(action)][static_cast<size_t>(chunk)]; }

  int64_t ranks_, rank_, wanted_, count_;
  int64_t done_[3][2] = {};  // by action and chunk
  PassList list_;
};

PassList passes_of(const Pipeline& pipeline, int64_t rank, int64_t micro_batches) {
  const int64_t behind = pipeline.ranks - 1 - rank;  // ranks behind this one
  const auto one_stage = [&] { return in_rounds(micro_batches, micro_batches, 1); };
  switch (pipeline.schedule) {
    case PipelineSchedule::gpipe:
      return alternate(one_stage(), micro_batches, 1);
    case PipelineSchedule::one_f_one_b:
      return alternate(one_stage(), std::min(behind, micro_batches), 1);
    case PipelineSchedule::interleaved: {
      const int64_t round = micro_batches_per_round(pipeline, micro_batches), chunks = pipeline.chunks;
      const int64_t warmup = std::min(2 * behind + (chunks - 1) * round, micro_batches * chunks);
      return alternate(in_rounds(micro_batches, round, chunks), warmup, chunks);
    }
    case PipelineSchedule::zbh1:
      return alternate(one_stage(), std::min(behind, micro_batches), 1, rank);
    case PipelineSchedule::zbv:
      return ZeroBubbleV(pipeline.ranks, rank, micro_batches).make();
  }
  return {};
}

/// Puts transfers between the passes of a rank.
class Transfers {
 public:
  /// passes: of all ranks.
  Transfers(const Pipeline& pipeline, int64_t rank, const std::vector<PassList>& passes)
      : rank_(static_cast<int>(rank)), passes_(passes) {
    stages_.ranks = static_cast<int>(pipeline.ranks);
    stages_.cut.chunks = static_cast<int>(pipeline.chunks);
    stages_.cut.v_shaped = pipeline.v_shaped();
  }

  std::vector<Instruction> add() const {
    const PassList& own = passes_[static_cast<size_t>(rank_)];
    std::vector<std::vector<Instruction>> received(own.size());
    for (int peer = 0; peer < stages_.ranks; ++peer)
      if (peer != rank_) receive_from(peer, received);
    std::vector<Instruction> list;
    for (size_t place = 0; place < own.size(); ++place) {
      list.insert(list.end(), received[place].begin(), received[place].end());
      list.push_back(own[place]);
      if (const auto message = message_of(rank_, own[place])) list.push_back(message->sent);
    }
    return list;
  }

 private:
  /// What a pass makes for another rank, as the two see it.
  struct Message {
    int to;
    Instruction sent, received;
  };

  std::optional<Message> message_of(int from, const Instruction& pass) const {
    const bool forward = pass.action == Action::forward;
    if (!forward && pass.action != Action::backward) return {};
    const int stage = stages_.stage_of(static_cast<int>(pass.chunk), from) + (forward ? 1 : -1);
    if (stage < 0 || stage >= stages_.ranks * stages_.cut.chunks) return {};
    const int to = stages_.rank_of(stage);
    if (to == from) return {};
    return Message{
        to,
        {forward ? Action::send_activation : Action::send_gradient, pass.micro_batch, pass.chunk},
        {forward ? Action::receive_activation : Action::receive_gradient, pass.micro_batch, stage / stages_.ranks}};
  }

  /// Adds to each pass of this rank what it receives just before it: what it reads, and what was sent before that.
  void receive_from(int peer, std::vector<std::vector<Instruction>>& received) const {
    std::vector<Instruction> messages;
    for (const Instruction& pass : passes_[static_cast<size_t>(peer)])
      if (const auto message = message_of(peer, pass); message && message->to == rank_)
        messages.push_back(message->received);
    std::vector<size_t> places(messages.size());
    size_t next = std::numeric_limits<size_t>::max();
    for (size_t i = messages.size(); i-- > 0;) places[i] = next = std::min(next, reader_of(messages[i]));
    for (size_t i = 0; i < messages.size(); ++i) received[places[i]].push_back(messages[i]);
  }

  size_t reader_of(const Instruction& message) const {
    const Action action = message.action == Action::receive_activation ? Action::forward : Action::backward;
    const PassList& own = passes_[static_cast<size_t>(rank_)];
    const auto reader = std::find(own.begin(), own.end(), Instruction{action, message.micro_batch, message.chunk});
    return static_cast<size_t>(reader - own.begin());
  }

  int rank_;
  const std::vector<PassList>& passes_;
  PipelineRanks stages_;
};

void check_rank(const Pipeline& pipeline, int64_t rank) {
  require(0 <= rank && rank < pipeline.ranks, "rank {} of a pipeline of {} ranks", rank, pipeline.ranks);
  check_chunks(pipeline);
}

}  // namespace

StepSchedule pipeline_schedule(const Pipeline& pipeline, int64_t rank, int64_t micro_batches) {
  check_rank(pipeline, rank);
  check_micro_batches(pipeline, micro_batches);
  std::vector<PassList> passes;
  for (int64_t each = 0; each < pipeline.ranks; ++each) passes.push_back(passes_of(pipeline, each, micro_batches));
  std::vector<Instruction> list = Transfers(pipeline, rank, passes).add();
  list.push_back({Action::reduce});
  list.push_back({Action::update});
  return StepSchedule(std::move(list), message_room(pipeline, micro_batches));
}

StepSchedule pipeline_evaluation_schedule(const Pipeline& pipeline, int64_t rank, int64_t micro_batches) {
  check_rank(pipeline, rank);
  const std::vector<PassList> passes(static_cast<size_t>(pipeline.ranks),
                                     in_rounds(micro_batches, pipeline.ranks, pipeline.chunks));
  return StepSchedule(Transfers(pipeline, rank, passes).add(), message_room(pipeline, micro_batches));
}

int64_t message_room(const Pipeline& pipeline, int64_t micro_batches) {
  if (pipeline.chunks == 1) return 0;
  return std::max<int64_t>(1, micro_batches_per_round(pipeline, micro_batches) - pipeline.ranks);
}

}  // namespace nought
