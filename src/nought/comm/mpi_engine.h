// MpiEngine: the communication thread of this process, the only one that calls MPI, and how it waits.
#pragma once

#include <atomic>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include <mpi.h>

#include "nought/comm/mpi.h"
#include "nought/comm/transport.h"

namespace nought {

/// Throws CommError with MPI's text unless the call succeeded.
void check_mpi(int code, std::string_view what);

/// Messages under way. What is received must be as long as expected.
class MpiRequests {
 public:
  void send(const Tensor& tensor, int peer, int tag, MPI_Comm group);
  void receive(const Tensor& tensor, int peer, int tag, MPI_Comm group);
  void add(MPI_Request request);
  /// True once all are complete; gives MPI the time to make progress.
  bool test();

 private:
  std::vector<MPI_Request> requests_;
  std::vector<int> expected_;  // bytes to receive, or -1
};

/// One per process, for ever: abort() may be called when everything else is gone.
class MpiEngine {
 public:
  static MpiEngine& instance();

  /// The communication thread. Everything below but cancel() and abort() is called on it.
  const std::shared_ptr<Stream>& stream() const { return stream_; }

  void initialize(const MpiOptions& options);
  /// Meets all ranks, then ends MPI; does nothing after a failure.
  void finalize();

  /// Polls until the requests are complete. CommError when the deadline passes or the engine was cancelled; after that
  /// every call fails: the ranks no longer agree on what comes next.
  void wait(const Call& call, MpiRequests& requests);
  /// Sends a message that nobody waits for, and keeps it until it has gone.
  void post(const Call& call, const Tensor& message, int destination, int tag, MPI_Comm group);
  /// Waits until all posted messages have gone.
  void flush(const Call& call);

  bool usable() const { return initialized_ && !cancelled_; }
  void cancel() { cancelled_ = true; }
  [[noreturn]] void abort(int code);

 private:
  struct Posted {
    Call call;
    Tensor message;
    MpiRequests requests;
  };
  MpiEngine();
  void check_usable(const Call& call) const;
  void end_ranks();
  /// Drops the messages that have gone, and comes again while some have not.
  void drain();
  void drop_sent();

  std::shared_ptr<Stream> stream_;
  std::thread::id thread_;
  MpiOptions options_;
  std::list<Posted> posted_;
  bool draining_ = false;
  MPI_Comm farewell_ = MPI_COMM_NULL;  // the last meeting must not be mistaken for another barrier
  std::atomic<bool> initialized_ = false;
  std::atomic<bool> cancelled_ = false;
  std::atomic<int> abort_code_ = kNoAbort;
  static constexpr int kNoAbort = -1;
};

}  // namespace nought
