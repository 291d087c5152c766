// MpiEngine: how this process calls MPI and waits for it.
//
// Each group has a communication thread of its own, and MPI gets one call at a time (MPI_THREAD_SERIALIZED): no call
// waits, so no group keeps another from getting on.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <type_traits>
#include <vector>

#include <mpi.h>

#include "nought/comm/mpi.h"
#include "nought/comm/transport.h"

namespace nought {

/// Throws CommError with MPI's text unless the call succeeded.
void check_mpi(int code, std::string_view what);

/// Held around every call to MPI, but for those that join and leave the job. First come, first served: who polls
/// without a nap would win a plain mutex again and again.
class MpiLock {
 public:
  MpiLock();
  ~MpiLock();
  MpiLock(const MpiLock&) = delete;
  MpiLock& operator=(const MpiLock&) = delete;
};

/// What every rank says, by rank. Blocking; the caller holds the lock.
template <class T>
std::vector<T> all_gathered(MPI_Comm ranks, const T& mine) {
  static_assert(std::is_trivially_copyable_v<T>);
  int size = 0;
  check_mpi(MPI_Comm_size(ranks, &size), "MPI_Comm_size");
  std::vector<T> all(static_cast<size_t>(size));
  check_mpi(MPI_Allgather(&mine, sizeof(T), MPI_BYTE, all.data(), sizeof(T), MPI_BYTE, ranks), "MPI_Allgather");
  return all;
}

/// Messages under way. CommError if a message has not the length of the tensor that receives it. Takes the lock itself.
class MpiRequests {
 public:
  void send(const Tensor& tensor, int peer, int tag, MPI_Comm group);
  void receive(const Tensor& tensor, int peer, int tag, MPI_Comm group);
  void broadcast(const Tensor& tensor, int root, MPI_Comm group);
  void barrier(MPI_Comm group);
  /// True once all messages are complete. Each call lets MPI make progress.
  bool test();

 private:
  void add(MPI_Request request);
  std::vector<MPI_Request> requests_;
  std::vector<int> expected_;  // bytes to receive, or -1
};

/// What a wait does between two polls: it spins for a while after progress, then sleeps. It sleeps for a thousandth of
/// the time since then where that is longer than a nap, as ranks that serve wait for hours. A patient one sleeps for an
/// eighth: messages may come only when another rank has computed for long, and polls take the core from this one's
/// computing. Neither sleeps for more than kLongestNap.
class Pause {
 public:
  explicit Pause(const MpiOptions& options, bool patient = false)
      : options_(options), patient_(patient), last_progress_(now()), poll_begin_(last_progress_) {}
  /// Call it after each poll that did not complete. A long poll counts as progress. Returns the current time.
  std::chrono::steady_clock::time_point after_poll();

 private:
  static std::chrono::steady_clock::time_point now() { return std::chrono::steady_clock::now(); }
  static constexpr std::chrono::microseconds kLongestNap{500};
  MpiOptions options_;
  bool patient_;
  std::chrono::steady_clock::time_point last_progress_, poll_begin_;
};

/// There is one per process, and it is never destroyed, because abort() may be called when everything else is gone.
class MpiEngine {
 public:
  static MpiEngine& instance();

  /// The communication thread of all ranks. It joins the job and leaves it.
  const std::shared_ptr<Stream>& stream() const { return stream_; }
  /// A communication thread for one more group. CommError if MPI takes calls from one thread only.
  std::shared_ptr<Stream> make_stream() const;

  /// On stream().
  void initialize(const MpiOptions& options);
  /// On stream(), when all groups are gone: meets all ranks, then ends MPI. Does nothing after a failure.
  void finalize();

  // The rest is called on any communication thread; cancel(), usable() and abort() on any thread.

  /// Polls until ready() is true. CommError if the deadline passes or the engine was cancelled. After that every call
  /// fails, because the ranks no longer agree on what comes next.
  template <class Ready>
  void wait_until(const Call& call, Ready&& ready, bool patient = false) {
    check_usable(call);
    timeout_.store(call.timeout, std::memory_order_relaxed);
    try {
      if (ready()) return;
      Pause pause(options_, patient);
      while (!ready()) pause_or_fail(call, pause);
    } catch (const CommError& error) {
      note_failure(call, error);
      throw;
    } catch (...) {
      cancel();
      throw;
    }
  }
  void wait(const Call& call, MpiRequests& requests, bool patient = false) {
    wait_until(
        call, [&] { return requests.test(); }, patient);
  }
  /// As wait_until, for a condition outside of MPI. `messages` says whether the call has MPI messages under way; they
  /// are moved on meanwhile, because otherwise ranks could wait for each other in a circle.
  template <class Ready>
  void wait_with_messages(const Call& call, bool messages, Ready&& ready) {
    wait_until(call, [&] {
      if (ready()) return true;
      if (messages) progress();
      return false;
    });
  }

  bool usable() const { return initialized_ && !cancelled_; }
  /// The time that the latest call had, for what no user calls.
  std::chrono::milliseconds timeout() const { return timeout_.load(std::memory_order_relaxed); }
  void cancel() { cancelled_ = true; }
  /// Likewise with a message, unless something has failed already.
  void cancel(const std::string& why);
  [[noreturn]] void abort(int code);

 private:
  MpiEngine();
  /// CommError after a failure: that of the call that failed first, since who waits for a later one shall hear it.
  void check_usable(const Call& call);
  /// Cancels. If nothing failed before, the error is the cause of what follows; one that is no time-out is thrown again
  /// with the calls that differ, if they are known.
  void note_failure(const Call& call, const CommError& error);
  void progress();
  void pause_or_fail(const Call& call, Pause& pause);
  void end_ranks();

  std::shared_ptr<Stream> stream_;
  std::thread::id thread_;
  MpiOptions options_;
  bool takes_threads_ = false;
  MPI_Comm farewell_ = MPI_COMM_NULL;  // a communicator of its own, so that no other barrier is taken for the last one
  std::atomic<bool> initialized_ = false;
  std::atomic<bool> cancelled_ = false;
  std::atomic<std::chrono::milliseconds> timeout_{kDefaultTimeout};
  std::mutex failure_mutex_;
  std::string failure_;  // what the call that failed first said
  std::atomic<int> abort_code_ = kNoAbort;
  static constexpr int kNoAbort = -1;
};

}  // namespace nought
