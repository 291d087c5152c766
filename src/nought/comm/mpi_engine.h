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

/// What a wait does between two polls: it spins after progress, then naps.
class Pause {
 public:
  explicit Pause(const MpiOptions& options) : options_(options), last_progress_(now()), poll_begin_(last_progress_) {}
  /// After a poll that did not complete, begun when the last call returned. Returns the time.
  std::chrono::steady_clock::time_point after_poll();

 private:
  static std::chrono::steady_clock::time_point now() { return std::chrono::steady_clock::now(); }
  MpiOptions options_;
  std::chrono::steady_clock::time_point last_progress_, poll_begin_;
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

  /// Polls until ready() is true. CommError when the deadline passes or the engine was cancelled; after that every call
  /// fails: the ranks no longer agree on what comes next.
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
  /// The same for what MPI knows nothing of, with `messages` of this rank under way: they must get on meanwhile, lest
  /// ranks wait for each other in turn.
  template <class Ready>
  void wait_beside_messages(const Call& call, bool messages, Ready&& ready) {
    wait_until(call, [&] {
      if (ready()) return true;
      if (messages || !posted_.empty()) progress();
      return false;
    });
  }
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
  void progress();
  void pause_or_fail(const Call& call, Pause& pause);
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
