// ScratchPool: objects that threads borrow as scratch space. With it a const object can be used by several threads
// without global or thread-local state.
#pragma once

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace nought {

template <class T>
class ScratchPool {
 public:
  /// A borrowed object. It goes back to the pool when the Loan ends.
  class Loan {
   public:
    Loan(ScratchPool& pool, std::unique_ptr<T> object) : pool_(pool), object_(std::move(object)) {}
    ~Loan() { pool_.give(std::move(object_)); }
    Loan(const Loan&) = delete;
    Loan& operator=(const Loan&) = delete;
    T& operator*() const { return *object_; }
    T* operator->() const { return object_.get(); }

   private:
    ScratchPool& pool_;
    std::unique_ptr<T> object_;
  };

  /// A free object, or make() if there is none.
  template <class Make>
  Loan borrow(Make&& make) {
    {
      const std::lock_guard lock(mutex_);
      if (!free_.empty()) {
        std::unique_ptr<T> object = std::move(free_.back());
        free_.pop_back();
        return Loan(*this, std::move(object));
      }
    }
    return Loan(*this, make());
  }
  Loan borrow() {
    return borrow([] { return std::make_unique<T>(); });
  }

 private:
  void give(std::unique_ptr<T> object) {
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(object));
  }

  std::mutex mutex_;
  std::vector<std::unique_ptr<T>> free_;
};

}  // namespace nought
