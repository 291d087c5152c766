// Streams run tasks in order. An Event tells when a task is done, and carries its failure to whoever waits.
//
// The compute stream of a CPU runs inline: when submit() returns, the task is done. Communication and I/O streams are
// FIFO workers with one thread each. A submitted task keeps the tensors that it captured alive until it has run.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
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
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    bool done = false;
    std::exception_ptr error;
  };
  std::shared_ptr<State> state_;
};

class Stream {
 public:
  enum class Kind {
    run_inline,  // submit() runs the task on the calling thread
    worker       // a thread of the stream runs the tasks
  };
  explicit Stream(Kind kind = Kind::run_inline, std::string name = "compute");
  /// Runs what was submitted, then joins the worker.
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  /// Runs `task` after all tasks submitted before. An inline stream throws the task's failure at once; a worker's
  /// failure surfaces where its Event is waited for.
  Event submit(std::function<void()> task);
  /// Waits for all tasks submitted so far (not for their success).
  void synchronize();

 private:
  struct Task {
    std::function<void()> run;
    std::shared_ptr<Event::State> state;
  };
  void work();

  std::string name_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> tasks_;
  bool stopping_ = false;
  std::thread worker_;
};

}  // namespace nought
