#include "nought/tensor/stream.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>

#include <pthread.h>

#include "nought/tensor/late.h"

namespace nought {

struct Stream::Task {
  std::function<void()> run;
  std::shared_ptr<TaskState> state;
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
    }
    changed.notify_one();
  }

  void count_wait() {
    std::lock_guard lock(mutex);
    ++waits[std::this_thread::get_id()];
  }
};

struct Stream::TaskState final : LateState {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  std::exception_ptr thrown;
  std::shared_ptr<Queue> late;  // the queue of a stream that runs late: waiting makes the task run
  uint64_t number = 0;          // the task has it on that stream

  void settle() override {
    if (late) late->count_wait(), late->demand(number);
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return done; });
  }
  bool ready() override {
    std::lock_guard lock(mutex);
    return done;
  }
  std::exception_ptr error() override {
    std::lock_guard lock(mutex);
    return thrown;
  }
  void demand() override {
    if (late) late->demand(number);
  }
};

void Event::wait() const {
  if (!state_) return;
  state_->settle();
  if (const std::exception_ptr error = state_->error()) std::rethrow_exception(error);
}

bool Event::ready() const { return !state_ || state_->ready(); }

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
  const auto state = std::make_shared<TaskState>();
  if (queue_->late) state->late = queue_;
  {
    std::lock_guard lock(queue_->mutex);
    state->number = ++queue_->submitted;
    queue_->tasks.push_back({std::move(task), state});
  }
  queue_->changed.notify_one();
  return Event(state);
}

Event Stream::submit_with(std::function<void()> task, std::shared_ptr<const void> host_memory) {
  return submit([task = std::move(task), host_memory = std::move(host_memory)] { task(); });
}

void Stream::wait(const Event& event) {
  if (!queue_) return event.wait();
  if (event.state()) submit([event] { event.wait(); });
}

Event Stream::record() {
  return queue_ ? submit([] {}) : Event();
}

void Stream::synchronize() {
  if (const Event all = record(); all.state()) all.state()->settle();
}

int64_t Stream::waits_of(std::thread::id thread) const {
  if (!queue_) return 0;
  std::lock_guard lock(queue_->mutex);
  const auto found = queue_->waits.find(thread);
  return found == queue_->waits.end() ? 0 : found->second;
}

void Stream::copy_bytes(const std::byte* from, std::byte* to, size_t count) { std::memcpy(to, from, count); }

void Stream::clear_bytes(std::byte* at, size_t count) { std::memset(at, 0, count); }

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
      task.state->thrown = error;
      task.state->done = true;
    }
    task.state->changed.notify_all();
  }
}

}  // namespace nought
