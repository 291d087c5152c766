// Lets a task of a late stream run although nobody here waits for it.
//
// A late stream runs what somebody in its own rank waits for. A message is waited for by another rank, which has no
// Event of it: the sender may go on for a step, or wait for an answer that never comes because nothing was sent.
#pragma once

#include "nought/tensor/stream.h"

namespace nought {

/// What an Event knows of a task of a late stream.
class LateState : public Event::State {
 public:
  /// Lets the task run, and those before it. Does not wait for it.
  virtual void demand() = 0;
};

/// Does what a wait for the event does, but goes on at once. Streams that are not late run by themselves.
inline void demand(const Event& event) {
  if (const auto late = dynamic_cast<LateState*>(event.state().get())) late->demand();
}

}  // namespace nought
