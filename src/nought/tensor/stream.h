// Streams run tasks in order. An Event tells when a task is done, and carries its failure to whoever waits: the host,
// or another stream.
//
// The compute stream of a CPU runs inline: when submit() returns, the task is done. Communication and I/O streams are
// FIFO workers with one thread each. The streams of a device may run late: the host submits and goes on. A submitted
// task keeps the tensors that it captured alive until it has run.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>

namespace nought {

/// The completion of one task. Copies share it. A default-made Event is done.
class Event {
 public:
  Event() = default;
  /// Blocks until the task ran; throws what it threw.
  void wait() const;
  bool ready() const;

 private:
  friend class Stream;
  struct State;
  /// Blocks until the task ran, or gave up.
  void settle() const;

  std::shared_ptr<State> state_;
};

class Stream {
 public:
  enum class Kind {
    run_inline,  // submit() runs the task on the calling thread
    worker,      // a thread of the stream runs the tasks
    late         // The same, as late as can be: when somebody waits for the task or for a later one. A wait that is
                 // missing is then a wrong result every time. What follows a task that failed fails as it did.
  };
  explicit Stream(Kind kind = Kind::run_inline, std::string name = "compute");
  /// Runs what was submitted, then joins the worker.
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  /// True if a task is done when submit() returns.
  bool runs_inline() const { return queue_ == nullptr; }
  /// Runs `task` after all tasks submitted before. An inline stream throws the task's failure at once; a worker's
  /// failure surfaces where its Event is waited for.
  Event submit(std::function<void()> task);
  /// Lets the tasks submitted from now on wait for the event, and fail with it if they come late. An inline stream
  /// waits here, and throws.
  void wait(const Event& event);
  /// Is done when all tasks submitted so far are.
  Event record();
  /// Waits for all tasks submitted so far (not for their success).
  void synchronize();
  /// How often a thread has waited for a task of this stream. Counted where the stream runs late; 0 elsewhere.
  int64_t waits_of(std::thread::id thread) const;

 private:
  friend class Event;
  struct Task;
  struct Queue;
  static void work(Queue& queue);

  std::shared_ptr<Queue> queue_;  // null: inline
  std::thread worker_;
};

}  // namespace nought
