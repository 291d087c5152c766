// OutputRelay: passes on to stdout what the ranks print, and notices when it cannot.
//
// mpirun goes on without a word when its own stdout is full or closed, so it writes into a pipe that the launcher
// reads. The launcher never waits for who reads its stdout: a pager that is left open must not keep it from signals.
#pragma once

#include <string>

#include <poll.h>

namespace nought {

class OutputRelay {
 public:
  /// From the descriptor `source` to the descriptor `sink`.
  OutputRelay(int source, int sink) : source_(source), sink_(sink) {}

  /// What poll() should wait for: room in the sink while something waits to be written, else bytes from the source.
  pollfd event() const;
  /// Reads or writes a piece, as poll() says it can. SIGPIPE must be blocked or ignored.
  void serve(const pollfd& event);

  /// True while bytes were read that are not written yet.
  bool waits() const { return !waiting_.empty(); }
  /// True once the source has ended.
  bool ended() const { return ended_; }
  /// The errno of the write that failed, or 0. What comes after it is dropped.
  int failure() const { return failure_; }

 private:
  int source_, sink_;
  std::string waiting_;
  bool ended_ = false;
  int failure_ = 0;
};

}  // namespace nought
