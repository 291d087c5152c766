#include "nought/tensor/stream.h"

#include <pthread.h>

namespace nought {

void Event::wait() const {
  if (!state_) return;
  std::unique_lock lock(state_->mutex);
  state_->changed.wait(lock, [&] { return state_->done; });
  if (state_->error) std::rethrow_exception(state_->error);
}

bool Event::ready() const {
  if (!state_) return true;
  std::lock_guard lock(state_->mutex);
  return state_->done;
}

Stream::Stream(Kind kind, std::string name) : name_(std::move(name)) {
  if (kind == Kind::worker) {
    worker_ = std::thread([this] { work(); });
    pthread_setname_np(worker_.native_handle(), name_.substr(0, 15).c_str());
  }
}

Stream::~Stream() {
  if (!worker_.joinable()) return;
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  worker_.join();
}

Event Stream::submit(std::function<void()> task) {
  if (!worker_.joinable()) {
    task();
    return {};
  }
  Event event;
  event.state_ = std::make_shared<Event::State>();
  {
    std::lock_guard lock(mutex_);
    tasks_.push_back({std::move(task), event.state_});
  }
  changed_.notify_one();
  return event;
}

void Stream::synchronize() {
  if (worker_.joinable()) submit([] {}).wait();
}

void Stream::work() {
  while (true) {
    Task task;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stopping_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    std::exception_ptr error;
    try {
      task.run();
    } catch (...) {
      error = std::current_exception();
    }
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
