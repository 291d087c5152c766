// Streams run tasks in order. An Event tells when a task is done, and carries its failure to whoever waits: the host,
// or another stream.
//
// The compute stream of a CPU runs inline: when submit() returns, the task is done. Communication and I/O streams are
// FIFO workers with one thread each. The streams of a device may run late: the host submits and goes on. A submitted
// task keeps the tensors that it captured alive until it has run.
//
// An accelerator has streams of its own, which derive from Stream: a task is called at once and puts work into the
// device's queue; its Event is done when that work is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>

namespace nought {

/// The completion of one task. Copies share it. A default-made Event is done.
class Event {
 public:
  /// What an Event knows of its task; each kind of stream has its own.
  class State {
   public:
    State() = default;
    virtual ~State() = default;
    State(const State&) = delete;
    State& operator=(const State&) = delete;
    /// Blocks until the task ran, or gave up.
    virtual void settle() = 0;
    virtual bool ready() = 0;
    /// What the task threw, once it has settled.
    virtual std::exception_ptr error() = 0;
  };

  Event() = default;
  explicit Event(std::shared_ptr<State> state) : state_(std::move(state)) {}
  /// Blocks until the task ran; throws what it threw.
  void wait() const;
  bool ready() const;
  /// Null if it is done from its birth.
  const std::shared_ptr<State>& state() const { return state_; }

 private:
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
  virtual ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  /// True if a task is done when submit() returns.
  virtual bool runs_inline() const { return queue_ == nullptr; }
  /// Runs `task` after all tasks submitted before. An inline stream throws the task's failure at once; a worker's
  /// failure surfaces where its Event is waited for.
  virtual Event submit(std::function<void()> task);
  /// Submits a task that reads or writes memory of the host beside what it has captured: that stays until the task's
  /// work is done.
  virtual Event submit_with(std::function<void()> task, std::shared_ptr<const void> host_memory);
  /// Lets the tasks submitted from now on wait for the event, and fail with it if they come late. An inline stream
  /// waits here, and throws.
  virtual void wait(const Event& event);
  /// Is done when all tasks submitted so far are.
  virtual Event record();
  /// Waits for all tasks submitted so far (not for their success).
  void synchronize();
  /// How often a thread has waited for a task of this stream. Counted where the stream runs late; 0 elsewhere.
  virtual int64_t waits_of(std::thread::id thread) const;

  /// For tasks of this stream: moves bytes from and to the addresses of kernels and of the host.
  virtual void copy_bytes(const std::byte* from, std::byte* to, size_t count);
  /// For tasks of this stream: sets bytes to 0.
  virtual void clear_bytes(std::byte* at, size_t count);

 private:
  struct Task;
  struct TaskState;
  struct Queue;
  static void work(Queue& queue);

  std::shared_ptr<Queue> queue_;  // null: inline
  std::thread worker_;
};

}  // namespace nought
