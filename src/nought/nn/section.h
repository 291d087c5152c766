// Section: a Unit and its work, y = body(x). A model's work on a micro-batch is a list of sections.
//
// Design goals: a list of sections says nothing of data, so it can be cut between pipeline stages and its order be told
// before anything runs; what is of one micro-batch is in the MicroBatchState that bodies get. Non-goals: networks in
// which a section reads more than the result of the one before it and its state.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "nought/autograd/tape.h"

namespace nought {

/// What a model keeps of one micro-batch, from its first section to the end of its backward pass. Models derive from
/// it.
class MicroBatchState {
 public:
  virtual ~MicroBatchState() = default;
};

struct Section {
  /// y of x. Recomputation calls it again.
  using Body = std::function<Var(Tape&, const Var& x, MicroBatchState&)>;

  Unit* unit = nullptr;  // null: work outside of all Units, or work that runs Units itself
  Body body = {};
  Recompute recompute = Recompute::none;  // what the backward pass computes again; none without a Unit
  // With full recompute:
  SavedInputs* saved_inputs = nullptr;  // keeps what a stack of sections runs again from; null: the inputs themselves
  bool joins = false;                   // it runs again from what is kept for the section before
  bool reads_tiles = false;             // what its Unit's tiles give is read again (see Tape::result_is_unread())
};

/// Runs sections one after another: what one gives is the x of the next.
Var run_sections(Tape& tape, std::span<const Section> sections, Var x, const std::shared_ptr<MicroBatchState>& state);

/// Neighbouring sections that run without a message from another rank: those of one pipeline stage.
struct Chunk {
  std::vector<Section> sections;
  int from = kNone, to = kNone;  // the places on the pipeline axis that have the stages before and behind
  bool wanted = false;           // somebody wants the gradient of its x: the stage before
  bool trained = true;           // somebody wants that of its result: then the stage behind sends it
  static constexpr int kNone = -1;

  /// Its x is the batch.
  bool first() const { return from == kNone; }
  /// It gives the loss.
  bool last() const { return to == kNone; }
};

/// The pass of a Unit in one direction.
struct UnitPass {
  size_t unit = 0;  // its index
  bool backward = false;
  bool operator==(const UnitPass&) const = default;
};
/// The passes of a forward pass through the sections, in their order; those of a Unit's tiles follow its own.
std::vector<UnitPass> forward_passes(std::span<const Section> sections);
/// The passes of a backward pass. It ends above the lowest section with something to train. Sections that run again
/// together are first walked forward, all but the last.
std::vector<UnitPass> backward_passes(std::span<const Section> sections);

}  // namespace nought
