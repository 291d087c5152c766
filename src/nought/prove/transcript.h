// Transcript: what one rank asks of the others in a run, in its order: calls of groups, and the moments at which it
// waits for one.
//
// Design goals: plain data, so that what is proven of it is proven by pure functions, and so that a mistake can be put
// into it. The host and its compute stream are one: what the compute stream waits for, nothing that comes behind begins
// before. Non-goals: when something happens.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "nought/comm/collective.h"

namespace nought {

/// Numbers of ranks, classes, groups and calls as places in vectors.
constexpr size_t as_index(int number) { return static_cast<size_t>(number); }

/// A group that the rank is in. All ranks make their groups in the same order, so the n-th group of each rank is one
/// partition of the job's ranks.
struct TranscriptGroup {
  std::vector<int> ranks;  // by their numbers in the job, in the order of the group
  std::string name;        // what it is for: "tensor", "channel 0 to 1"
};

/// A call of a group. A send_recv is a send that is `posted`, and behind it a recv that ends when both have.
struct TranscriptCall {
  int group = 0;
  Collective::Kind kind = Collective::barrier;
  ReduceOp op = ReduceOp::sum;
  DType dtype = DType::u8;
  bool posted = false;       // the calls behind it need not wait for its end
  bool ends_posted = false;  // this recv ends when the posted send before it has ended, too
  int64_t bytes = 0;
  int peer = -1;  // the root, or the other rank of a message: a place in the group
  int tag = 0;
  int place = 0;  // in Transcript::places

  bool message() const { return kind == Collective::send || kind == Collective::recv; }
  bool operator==(const TranscriptCall&) const = default;
};

struct TranscriptEvent {
  enum class Kind : uint8_t {
    call,   // the host issues a call
    wait,   // it goes on when the call has ended
    follow  // what the group is asked from now on begins when the call has ended
  };
  Kind kind = Kind::call;
  int call = 0;   // in Transcript::calls
  int group = 0;  // that follows, if the kind is follow
  bool operator==(const TranscriptEvent&) const = default;
};

/// Where in the run a call is issued.
struct TranscriptPlace {
  std::string part;     // what the run does: "step 2", "validation"
  std::string phase;    // "forward"
  std::string unit;     // the Unit whose pass it is: "block.3"
  std::string subject;  // what the call is about: "block.4", "activation 3"

  /// "step 2, forward, block.3, for activation 3"
  std::string str() const;
  bool operator==(const TranscriptPlace&) const = default;
};

struct Transcript {
  int rank = 0;
  int stage = 0;  // its place in the pipeline
  std::vector<TranscriptGroup> groups;
  std::vector<TranscriptCall> calls;
  std::vector<TranscriptEvent> events;
  std::vector<TranscriptPlace> places;

  /// The place of this rank in one of its groups.
  int place_in(int group) const;
  const TranscriptPlace& place_of(const TranscriptCall& call) const { return places[as_index(call.place)]; }
  /// "all_gather of 12.0 MiB f32 in tensor (step 2, forward, block.3)"
  std::string str(const TranscriptCall& call) const;
};

/// The transcripts of a job: one for each class of ranks that do the same.
struct RecordedRanks {
  std::vector<Transcript> transcripts;  // by class
  std::vector<int> class_of;            // by rank

  const Transcript& of_rank(int rank) const { return transcripts[as_index(class_of[as_index(rank)])]; }
};

/// A mistake, for people: which rank, which call, which Unit, where in the run.
struct Counterexample {
  int rank = -1;     // -1: no one rank
  std::string text;  // a sentence without a full stop
};

}  // namespace nought
