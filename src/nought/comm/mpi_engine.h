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

/// Messages under way. CommError if a message has not the length of the tensor that receives it.
class MpiRequests {
 public:
  void send(const Tensor& tensor, int peer, int tag, MPI_Comm group);
  void receive(const Tensor& tensor, int peer, int tag, MPI_Comm group);
  void add(MPI_Request request);
  /// True once all messages are complete. Each call lets MPI make progress.
  bool test();

 private:
  std::vector<MPI_Request> requests_;
  std::vector<int> expected_;  // bytes to receive, or -1
};

/// What a wait does between two polls: it spins for a while after progress, then sleeps.
class Pause {
 public:
  explicit Pause(const MpiOptions& options) : options_(options), last_progress_(now()), poll_begin_(last_progress_) {}
  /// Call it after each poll that did not complete. A long poll counts as progress. Returns the current time.
  std::chrono::steady_clock::time_point after_poll();

 private:
  static std::chrono::steady_clock::time_point now() { return std::chrono::steady_clock::now(); }
  MpiOptions options_;
  std::chrono::steady_clock::time_point last_progress_, poll_begin_;
};

/// There is one per process, and it is never destroyed, because abort() may be called when everything else is gone.
class MpiEngine {
 public:
  static MpiEngine& instance();

  /// The stream of the communication thread. All functions below but cancel() and abort() are called on that thread.
  const std::shared_ptr<Stream>& stream() const { return stream_; }

  void initialize(const MpiOptions& options);
  /// Meets all ranks, then ends MPI; does nothing after a failure.
  void finalize();

  /// Polls until ready() is true. CommError if the deadline passes or the engine was cancelled. After that every call
  /// fails, because the ranks no longer agree on what comes next.
  template <class Ready>
  void wait_until(const Call& call, Ready&& ready) {
    check_usable(call);
    try {
      if (ready()) return;
      Pause pause(options_);
      while (!ready()) pause_or_fail(call, pause);
    } catch (...) {
      cancel();
      throw;
    }
  }
  void wait(const Call& call, MpiRequests& requests) {
    wait_until(call, [&] { return requests.test(); });
  }
  /// As wait_until, for a condition outside of MPI. `messages` says whether the call has MPI messages under way; they
  /// are moved on meanwhile, because otherwise ranks could wait for each other in a circle.
  template <class Ready>
  void wait_beside_messages(const Call& call, bool messages, Ready&& ready) {
    wait_until(call, [&] {
      if (ready()) return true;
      if (messages || !posted_.empty()) progress();
      return false;
    });
  }
  /// Sends a message without waiting for it, and keeps the tensor until it has been sent.
  void post(const Call& call, const Tensor& message, int destination, int tag, MPI_Comm group);
  /// Waits until all posted messages have been sent.
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
  void progress();
  void pause_or_fail(const Call& call, Pause& pause);
  void end_ranks();
  /// Drops the posted messages that have been sent, and submits itself again while there are others.
  void drain();
  void drop_sent();

  std::shared_ptr<Stream> stream_;
  std::thread::id thread_;
  MpiOptions options_;
  std::list<Posted> posted_;
  bool draining_ = false;
  MPI_Comm farewell_ = MPI_COMM_NULL;  // a communicator of its own, so that no other barrier is taken for the last one
  std::atomic<bool> initialized_ = false;
  std::atomic<bool> cancelled_ = false;
  std::atomic<int> abort_code_ = kNoAbort;
  static constexpr int kNoAbort = -1;
};

}  // namespace nought
