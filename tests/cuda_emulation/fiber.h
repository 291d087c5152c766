// Fiber: a function that runs on a stack of its own and can pause. Each has a guard page below its stack.
//
// Non-goals: moving a fiber to another thread; unwinding what a fiber that never ends holds.
#pragma once

#include <cstddef>

namespace nought::emulation {

class Fiber {
 public:
  Fiber();
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// Makes the fiber ready to run body(argument). What it ran before is forgotten. `body` must not throw.
  void start(void (*body)(void*), void* argument);
  /// Runs it until it pauses (true) or has ended (false).
  bool resume();
  /// Pauses the fiber that calls it.
  void pause();

 private:
  static constexpr size_t kStackBytes = 65536;
  struct Switch;
  [[noreturn]] static void enter();

  std::byte* stack_;  // behind the guard page
  void (*body_)(void*) = nullptr;
  void* argument_ = nullptr;
  bool ended_ = true;
  Switch* switch_;
};

}  // namespace nought::emulation
