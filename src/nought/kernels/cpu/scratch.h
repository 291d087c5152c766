// Scratch memory of the calling thread: blocks that kernels pack operands into, kept from call to call.
//
// Design goals: no allocation in a steady state, no sharing between threads, so no locks. Non-goals: a place in the
// ledger (it is a few cache blocks per thread; only f16 products widen whole operands here), giving memory back before
// the thread ends.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>
#include <vector>

namespace nought::cpu {

/// What to ask a Scratch for.
template <class T>
constexpr int64_t bytes_for(int64_t elements) {
  return elements * static_cast<int64_t>(sizeof(T));
}

/// The bytes that all threads have lent. Tests measure with it what a kernel takes.
class ScratchUse {
 public:
  static void add(int64_t bytes) {
    const int64_t now = current_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    int64_t peak = peak_.load(std::memory_order_relaxed);
    while (now > peak && !peak_.compare_exchange_weak(peak, now, std::memory_order_relaxed)) {
    }
  }
  /// The most since the last reset_peak().
  static int64_t peak() { return peak_; }
  static void reset_peak() { peak_ = current_.load(); }

 private:
  static inline std::atomic<int64_t> current_ = 0, peak_ = 0;
};

/// A 64-byte aligned block that its thread lends until the end of the scope. Scopes may nest; contents are undefined.
class Scratch {
 public:
  explicit Scratch(int64_t bytes) : bytes_(bytes) {
    ScratchUse::add(bytes);
    std::vector<Block>& free = free_blocks();
    if (!free.empty()) {
      block_ = std::move(free.back());
      free.pop_back();
    }
    if (block_.bytes < bytes) {
      block_ = {};  // first, so that the old and the new block are never alive together
      block_ = {std::unique_ptr<std::byte, Free>(
                    static_cast<std::byte*>(::operator new (static_cast<size_t>(bytes), std::align_val_t{kAlignment}))),
                bytes};
    }
  }
  ~Scratch() {
    ScratchUse::add(-bytes_);
    free_blocks().push_back(std::move(block_));
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  template <class T = std::byte>
  T* data() const {
    return reinterpret_cast<T*>(block_.memory.get());
  }

 private:
  static constexpr size_t kAlignment = 64;
  struct Free {
    void operator()(std::byte* memory) const { ::operator delete (memory, std::align_val_t{kAlignment}); }
  };
  struct Block {
    std::unique_ptr<std::byte, Free> memory;
    int64_t bytes = 0;
  };
  static std::vector<Block>& free_blocks() {
    static thread_local std::vector<Block> blocks;
    return blocks;
  }

  Block block_;
  int64_t bytes_;
};

}  // namespace nought::cpu
