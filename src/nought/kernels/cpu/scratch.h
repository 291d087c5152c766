// Scratch memory of the calling thread: blocks that kernels pack operands into, kept from call to call.
//
// Design goals: no allocation in a steady state, no sharing between threads, so no locks. Non-goals: accounting (it is
// a few cache blocks per thread; only f16 products widen whole operands here), giving memory back before the thread
// ends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>
#include <vector>

namespace nought::cpu {

/// A 64-byte aligned block that its thread lends until the end of the scope. Scopes may nest; contents are undefined.
class Scratch {
 public:
  explicit Scratch(int64_t bytes) {
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
  ~Scratch() { free_blocks().push_back(std::move(block_)); }
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
};

}  // namespace nought::cpu
