#include "nought/aio/crew.h"

#include <utility>

#include <pthread.h>

namespace nought {

Crew::Crew(int size, const std::string& name) {
  for (int i = 1; i < size; ++i) {
    threads_.emplace_back([this, i] { serve(i); });
    pthread_setname_np(threads_.back().native_handle(), name.substr(0, 15).c_str());
  }
}

Crew::~Crew() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Crew::run(const std::function<void(int)>& work) {
  {
    std::lock_guard lock(mutex_);
    work_ = &work;
    busy_ = size() - 1;
    ++round_;
  }
  changed_.notify_all();
  call(0);
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return busy_ == 0; });
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void Crew::serve(int index) {
  for (uint64_t seen = 0;;) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stopping_ || round_ != seen; });
      if (stopping_) return;
      seen = round_;
    }
    call(index);
    std::lock_guard lock(mutex_);
    if (--busy_ == 0) changed_.notify_all();
  }
}

void Crew::call(int index) {
  try {
    (*work_)(index);
  } catch (...) {
    std::lock_guard lock(mutex_);
    if (!error_) error_ = std::current_exception();
  }
}

}  // namespace nought
