#include "nought/parallel/context_ring.h"

#include <algorithm>
#include <array>
#include <utility>

#include "nought/comm/flight_recorder.h"
#include "nought/parallel/context_keys.h"

namespace nought {

namespace {

/// What travels, as the tags of messages.
enum class Message : uint8_t { keys, gradients, back };

/// Who has whose keys on each step, and what goes where. On step i a rank has the keys of the rank i places before it.
class Ring {
 public:
  Ring(const PackedHeads& heads, const AttentionOptions& options, const ContextTokens& tokens)
      : keys_(heads), options_(options), spans_(tokens, options), ranks_(tokens.ranks) {
    for (int from = 0; from < size(); ++from) {
      hops_.push_back(spans_.hops(from));
      most_tokens_ = std::max(most_tokens_, tokens.tokens(from));
    }
  }

  int size() const { return ranks_.ranks; }
  const PackedKeys& keys() const { return keys_; }
  Communicator& group() const { return *ranks_.group; }
  /// The rank whose keys are here on this step.
  int source(int step) const { return place(ranks_.rank - step); }
  int hops(int from) const { return hops_[static_cast<size_t>(from)]; }
  /// True if keys come here on this step, or are this rank's own.
  bool here(int step) const { return step < size() && hops(source(step)) >= step; }
  int previous() const { return place(ranks_.rank - 1); }
  int next() const { return place(ranks_.rank + 1); }
  /// The last rank that this rank's keys visit; it sends their gradients back.
  int last_visited() const { return place(ranks_.rank + hops(ranks_.rank)); }

  /// Room for the keys of any rank: of one size, so that memory is found again.
  Tensor room(const Context& context, DType dtype) const {
    return context.empty({most_tokens_, keys_.width()}, dtype, Category::communication);
  }
  /// The part of such room that the keys on this step take.
  Tensor of_step(const Tensor& room, int step) const { return room.slice(0, spans_.tokens().tokens(source(step))); }

  /// Sends one tensor to a rank and receives another from one, in place. Either may be undefined; without both, `event`
  /// stays the one before. Every rank makes its calls in the same order of steps and, within a step, of messages: so no
  /// two ranks wait for each other.
  void pass(Message what, const Tensor& sent, int to, const Tensor& received, int from, Event& event) const {
    const int tag = static_cast<int>(what);
    if (sent && received) {
      event = group().send_recv(sent, to, received, from, tag);
    } else if (sent) {
      event = group().send(sent, to, tag);
    } else if (received) {
      event = group().recv(received, from, tag);
    }
  }

  /// Calls body(shape, first) for the calls of attention on the keys of this step. The first of all has every query.
  template <class Body>
  void for_each_call(int step, const Body& body) const {
    for (const int half : {0, 1}) {
      std::vector<AttentionSpan> spans = spans_.on_chunks(ranks_.rank, source(step), half);
      const bool first = step == 0 && half == 0;
      if (first || any_keys(spans)) body(keys_.shape(options_, std::move(spans)), first);
    }
  }

 private:
  int place(int rank) const { return (rank + size()) % size(); }

  PackedKeys keys_;
  AttentionOptions options_;
  ContextSpans spans_;
  ContextRanks ranks_;
  std::vector<int> hops_;
  int64_t most_tokens_ = 0;
};

/// The keys that are here, while the next ones come.
class TravellingKeys {
 public:
  TravellingKeys(const Context& context, const Ring& ring, const Tensor& qkv)
      : context_(context), ring_(ring), rooms_{ring.room(context, qkv.dtype()), ring.room(context, qkv.dtype())} {
    ring.keys().pack(context, qkv, rooms_[0]);
  }

  /// The keys and values of this step; undefined if none are here.
  Tensor at(int step) const { return ring_.here(step) ? ring_.of_step(room(step), step) : Tensor(); }
  /// Begins to pass those of this step on and to receive the next step's.
  void pass(int step) {
    const bool go_on = ring_.here(step) && ring_.hops(ring_.source(step)) > step;
    ring_.pass(Message::keys, go_on ? at(step) : Tensor(), ring_.next(), at(step + 1), ring_.previous(), passed_);
  }
  /// Waits until that is done.
  void arrive() const { ring_.group().wait(passed_, *context_.stream); }

 private:
  const Tensor& room(int step) const { return rooms_[static_cast<size_t>(step % 2)]; }

  const Context& context_;
  const Ring& ring_;
  std::array<Tensor, 2> rooms_;
  Event passed_;
};

struct Merged {
  Tensor out, lse;
};

/// Attends to the keys of all steps. The result has the dtype that results are merged in.
Merged attend_steps(const Context& context, const Ring& ring, const Tensor& qkv, const Tensor& sinks) {
  const PackedKeys& keys = ring.keys();
  const DType dtype = statistics_dtype(qkv.dtype());
  const auto make = [&](Category category) {
    return Merged{context.empty({qkv.rows(), keys.out_width()}, dtype, category),
                  context.empty({keys.whole.num_heads, qkv.rows()}, dtype, category)};
  };
  const Merged all = make(Category::activations), piece = make(Category::workspace);
  TravellingKeys travelling(context, ring, qkv);
  for (int step = 0; step < ring.size(); ++step) {
    travelling.pass(step);
    if (const Tensor here = travelling.at(step)) {
      ring.for_each_call(step, [&](const AttentionShape& shape, bool first) {
        const Merged& result = first ? all : piece;
        context.run(Attention{.shape = shape,
                              .q = keys.queries(qkv),
                              .k = keys.in(here).k,
                              .v = keys.in(here).v,
                              .out = result.out,
                              .lse = result.lse,
                              .sinks = first ? sinks : Tensor{}});
        if (!first)
          context.run(MergeAttention{
              .shape = shape, .piece_out = piece.out, .piece_lse = piece.lse, .out = all.out, .lse = all.lse});
      });
    }
    travelling.arrive();
  }
  return all;
}

/// The sums of gradients of the keys that are here, which travel a step behind them.
class TravellingGradients {
 public:
  TravellingGradients(const Context& context, const Ring& ring, DType dtype)
      : context_(context), ring_(ring), rooms_{ring.room(context, dtype), ring.room(context, dtype)} {
    if (ring.size() > 2) own_ = ring.room(context, dtype);
  }

  /// Zeros, to which this rank's part is added.
  Tensor part(int step) const {
    Tensor part = step > 1 ? ring_.of_step(own_, step) : sum(step);
    context_.zero(part);
    return part;
  }
  /// Adds the part to the sum that came.
  void add(int step, const Tensor& part) const {
    if (step > 1) context_.run(AddTo{part, sum(step)});
  }
  /// Begins to pass the sum of this step on, or back, and to receive the next step's, and the one of this rank's keys.
  void pass(int step) {
    if (step == 0) return;
    const int from = ring_.source(step);
    const bool goes_on = ring_.here(step) && ring_.hops(from) > step, goes_back = ring_.hops(from) == step;
    const Tensor none, coming = ring_.here(step + 1) ? sum(step + 1) : none;
    ring_.pass(Message::gradients, goes_on ? sum(step) : none, ring_.next(), coming, ring_.previous(), passed_);
    // After the last step nothing comes into the room of the next one.
    const bool comes_back = ring_.hops(ring_.source(0)) == step, last = step + 1 == ring_.size();
    if (comes_back) returned_ = ring_.of_step(last ? room(step + 1) : ring_.room(context_, rooms_[0].dtype()), 0);
    ring_.pass(Message::back, goes_back ? sum(step) : none, from, comes_back ? returned_ : none, ring_.last_visited(),
               sent_back_);
  }
  /// Waits until all that is done.
  void arrive() const {
    ring_.group().wait(passed_, *context_.stream);
    ring_.group().wait(sent_back_, *context_.stream);
  }
  /// What the other ranks have added up of this rank's keys; undefined if none has seen them.
  const Tensor& returned() const { return returned_; }

 private:
  const Tensor& room(int step) const { return rooms_[static_cast<size_t>(step % 2)]; }
  Tensor sum(int step) const { return ring_.of_step(room(step), step); }

  const Context& context_;
  const Ring& ring_;
  std::array<Tensor, 2> rooms_;
  Tensor own_, returned_;
  Event passed_, sent_back_;
};

/// What the backward pass has of the forward pass and of what came after it.
struct RingPass {
  Tensor qkv, out, lse, d_out;
  ParameterView sinks;
  GradSink d_sinks;
};

/// Adds the gradients of the queries, and those of the keys that are here on this step.
void attend_step_backward(const Context& context, const Ring& ring, int step, const RingPass& known, const Tensor& here,
                          const Heads& dq, const KeyHeads& d_keys) {
  const KeyHeads keys = ring.keys().in(here);
  ring.for_each_call(step, [&](const AttentionShape& shape, bool first) {
    const bool with_sinks = first && known.sinks.defined();
    context.run(AttentionBackward{.shape = shape,
                                  .q = ring.keys().queries(known.qkv),
                                  .k = keys.k,
                                  .v = keys.v,
                                  .out = known.out,
                                  .lse = known.lse,
                                  .d_out = known.d_out,
                                  .dq = dq,
                                  .dk = d_keys.k,
                                  .dv = d_keys.v,
                                  .sinks = with_sinks ? known.sinks.value() : Tensor{},
                                  .d_sinks = with_sinks ? known.d_sinks.into : Tensor{},
                                  .accumulate_sinks = known.d_sinks.accumulate,
                                  .accumulate_q = true,
                                  .accumulate_kv = true});
  });
}

/// The gradient of qkv, in the dtype of sums.
Tensor ring_gradient(const Context& context, const Ring& ring, const RingPass& known) {
  const PackedKeys& keys = ring.keys();
  const DType dtype = statistics_dtype(known.qkv.dtype());
  const Tensor d = context.zeros(known.qkv.shape(), dtype);
  TravellingKeys travelling(context, ring, known.qkv);
  TravellingGradients gradients(context, ring, dtype);
  for (int step = 0; step < ring.size(); ++step) {
    travelling.pass(step);
    if (const Tensor here = travelling.at(step); here && step == 0) {
      attend_step_backward(context, ring, step, known, here, keys.queries(d), keys.within(d));
    } else if (here) {
      const Tensor part = gradients.part(step);
      attend_step_backward(context, ring, step, known, here, keys.queries(d), keys.in(part));
      gradients.arrive();
      gradients.add(step, part);
    }
    gradients.pass(step);
    travelling.arrive();
  }
  gradients.arrive();
  if (gradients.returned()) keys.add_to(context, gradients.returned(), d);
  return d;
}

}  // namespace

Var ring_attention(Tape& tape, const Var& qkv, const PackedHeads& heads, const AttentionOptions& options,
                   const ContextTokens& tokens) {
  const Context& context = tape.context();
  const auto ring = std::make_shared<const Ring>(heads, options, tokens);
  const FlightSubject subject(ring->group(), "keys and values");
  const Merged attended =
      attend_steps(context, *ring, qkv.value, options.sinks.defined() ? options.sinks.value() : Tensor{});
  const Tensor out = as_dtype(context, attended.out, qkv.value.dtype());
  return tape.record(
      out, {qkv, options.sinks},
      [qkv, ring, out, lse = attended.lse, sinks = options.sinks](Gradients& gradients, const Tensor& d_out) {
        const Context& context = gradients.context();
        const FlightSubject subject(ring->group(), "keys and values");
        const Tensor d = ring_gradient(context, *ring, {qkv.value, out, lse, d_out, sinks, gradients.sink(sinks)});
        gradients.give(qkv, as_dtype(context, d, qkv.value.dtype()));
      });
}

}  // namespace nought
