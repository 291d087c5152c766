#include "nought/tensor/stream.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>

#include <pthread.h>

namespace nought {

struct Event::State {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  std::exception_ptr error;
  std::shared_ptr<Stream::Queue> late;  // the queue of a stream that runs late: waiting makes the task run
  uint64_t number = 0;                  // the task has it on that stream
};

struct Stream::Task {
  std::function<void()> run;
  std::shared_ptr<Event::State> state;
};

/// What the stream and its thread share. Events of a late stream hold it too, and may outlive the stream.
struct Stream::Queue {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Task> tasks;
  bool stopping = false;
  const bool late;
  uint64_t submitted = 0, demanded = 0;  // numbers of tasks
  std::exception_ptr failure = {};  // all tasks of a late stream fail with it from then on; its thread alone sees it
  std::map<std::thread::id, int64_t> waits = {};  // of a late stream

  explicit Queue(bool runs_late) : late(runs_late) {}

  void demand(uint64_t number) {
    {
      std::lock_guard lock(mutex);
      demanded = std::max(demanded, number);
      ++waits[std::this_thread::get_id()];
    }
    changed.notify_one();
  }
};

void Event::settle() const {
  if (!state_) return;
  if (state_->late) state_->late->demand(state_->number);
  std::unique_lock lock(state_->mutex);
  state_->changed.wait(lock, [&] { return state_->done; });
}

void Event::wait() const {
  settle();
  if (state_ && state_->error) std::rethrow_exception(state_->error);
}

bool Event::ready() const {
  if (!state_) return true;
  std::lock_guard lock(state_->mutex);
  return state_->done;
}

Stream::Stream(Kind kind, std::string name) {
  if (kind == Kind::run_inline) return;
  queue_ = std::make_shared<Queue>(kind == Kind::late);
  worker_ = std::thread([queue = queue_] { work(*queue); });
  pthread_setname_np(worker_.native_handle(), name.substr(0, 15).c_str());
}

Stream::~Stream() {
  if (!queue_) return;
  {
    std::lock_guard lock(queue_->mutex);
    queue_->stopping = true;
  }
  queue_->changed.notify_one();
  worker_.join();
}

Event Stream::submit(std::function<void()> task) {
  if (!queue_) {
    task();
    return {};
  }
  Event event;
  event.state_ = std::make_shared<Event::State>();
  if (queue_->late) event.state_->late = queue_;
  {
    std::lock_guard lock(queue_->mutex);
    event.state_->number = ++queue_->submitted;
    queue_->tasks.push_back({std::move(task), event.state_});
  }
  queue_->changed.notify_one();
  return event;
}

void Stream::wait(const Event& event) {
  if (!queue_) return event.wait();
  if (event.state_) submit([event] { event.wait(); });
}

Event Stream::record() {
  return queue_ ? submit([] {}) : Event();
}

void Stream::synchronize() { record().settle(); }

int64_t Stream::waits_of(std::thread::id thread) const {
  if (!queue_) return 0;
  std::lock_guard lock(queue_->mutex);
  const auto found = queue_->waits.find(thread);
  return found == queue_->waits.end() ? 0 : found->second;
}

void Stream::work(Queue& queue) {
  while (true) {
    Task task;
    {
      std::unique_lock lock(queue.mutex);
      queue.changed.wait(lock, [&] {
        return queue.stopping ||
               (!queue.tasks.empty() && (!queue.late || queue.demanded >= queue.tasks.front().state->number));
      });
      if (queue.tasks.empty()) return;
      task = std::move(queue.tasks.front());
      queue.tasks.pop_front();
    }
    std::exception_ptr error = queue.failure;
    if (!error) {
      try {
        task.run();
      } catch (...) {
        error = std::current_exception();
      }
    }
    if (queue.late) queue.failure = error;
    task.run = nullptr;  // frees the captured tensors before anyone is told
    {
      std::lock_guard lock(task.state->mutex);
      task.state->error = error;
      task.state->done = true;
    }
    task.state->changed.notify_all();
  }
}

}  // namespace nought
