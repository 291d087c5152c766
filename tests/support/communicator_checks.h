// What every communicator must do, checked over whatever ranks it connects: run by thread ranks in the unit tests and
// by processes under mpirun. Every rank knows what all ranks hold, computes each result itself, and compares bits.
#pragma once

#include "nought/comm/communicator.h"

namespace nought::test {

/// Each collective for every dtype and many lengths, against plain loops in the stated order of additions. Throws
/// Error on the first difference.
void check_collectives(Communicator& communicator, const Context& context);
/// Several collectives in flight, waited for in another order.
void check_overlap(Communicator& communicator, const Context& context);
/// Groups by parity and in reverse order, nested, of one: each does what a group of its ranks must.
void check_split(Communicator& communicator, const Context& context);
/// Two groups of the same ranks, whose collectives the ranks issue in different orders, and a receive whose message is
/// sent only when a collective of another group is done: all end.
void check_independent_groups(Communicator& communicator, const Context& context);
/// Neighbours exchange in a ring, all sending before receiving, with tags taken out of order.
void check_send_recv(Communicator& communicator, const Context& context);
/// The counters equal (N-1)/N formulas.
void check_traffic(Communicator& communicator, const Context& context);
/// The communication buffers of a large reduction stay small, and go.
void check_workspace(Communicator& communicator, const Context& context);

/// All of the above.
inline void check_communicator(Communicator& communicator, const Context& context) {
  check_collectives(communicator, context);
  check_overlap(communicator, context);
  check_split(communicator, context);
  check_independent_groups(communicator, context);
  check_send_recv(communicator, context);
  check_traffic(communicator, context);
  check_workspace(communicator, context);
}

}  // namespace nought::test
