// Crew: threads that do a piece of work together.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace nought {

class Crew {
 public:
  /// `size` threads, of which one is the caller of run().
  Crew(int size, const std::string& name);
  ~Crew();
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  int size() const { return static_cast<int>(threads_.size()) + 1; }
  /// Calls work(0), ..., work(size() - 1), each on a thread of its own, and returns when all are done. Throws the first
  /// thing that one of them threw.
  void run(const std::function<void(int)>& work);

 private:
  void serve(int index);
  void call(int index);

  std::mutex mutex_;
  std::condition_variable changed_;
  const std::function<void(int)>* work_ = nullptr;
  uint64_t round_ = 0;
  int busy_ = 0;
  bool stopping_ = false;
  std::exception_ptr error_;
  std::vector<std::thread> threads_;
};

}  // namespace nought
