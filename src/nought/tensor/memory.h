// Accounted memory: every Buffer is born with a category and a pool, and one ledger per rank keeps what is alive.
//
// Design goals: no byte of tensor data outside the ledger; freed blocks are kept and reused, and those of a training
// step lie in an arena (arena.h), so that a steady step asks the system for nothing and leaves no gaps; a refused
// allocation explains itself.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "nought/base/error.h"
#include "nought/tensor/arena.h"
#include "nought/tensor/pool.h"

namespace nought {

enum class Category : uint8_t { parameters, gradients, optimizer, activations, communication, workspace, kv_cache };
inline constexpr int kNumCategories = 7;
std::string_view name_of(Category category);

/// Bytes alive now and at most, by category. Thread safe.
class MemoryLedger {
 public:
  void add(Category category, Pool pool, int64_t bytes);
  void remove(Category category, Pool pool, int64_t bytes);

  int64_t current(Category category, Pool pool = Pool::device) const;
  /// The largest value that this category alone reached.
  int64_t peak(Category category, Pool pool = Pool::device) const;
  int64_t current_total(Pool pool = Pool::device) const;
  /// The largest sum over all categories, and what each category held at that moment.
  int64_t peak_total(Pool pool = Pool::device) const;
  int64_t at_peak(Category category, Pool pool = Pool::device) const;
  /// Forgets the peaks: they restart from what is alive now.
  void reset_peaks();

  /// One line per category: current, peak, at the total's peak.
  std::string table() const;

 private:
  struct Account {
    int64_t current = 0, peak = 0, at_peak = 0;
  };
  struct Book {
    std::array<Account, kNumCategories> accounts;
    int64_t current = 0, peak = 0;
  };
  mutable std::mutex mutex_;
  std::array<Book, kNumPools> books_;
};

/// An allocation would exceed the budget that was set for the pool. The message shows what is alive.
class MemoryLimitError : public DeviceError {
 public:
  using DeviceError::DeviceError;
};

class Memory;

/// A block of bytes, 64-byte aligned, owned until the last reference goes; then it returns to its Memory.
class Buffer {
 public:
  /// Of a block that the Memory allocated, or, with an `owner`, of one that it adopted.
  Buffer(std::shared_ptr<Memory> memory, void* data, int64_t bytes, size_t size_class, Category category, Pool pool,
         std::shared_ptr<void> owner = nullptr);
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  std::byte* data() const { return static_cast<std::byte*>(data_); }
  int64_t bytes() const { return bytes_; }
  Category category() const { return category_; }
  Pool pool() const { return pool_; }
  /// True if nothing worth keeping is in it: see Memory::create_virtual().
  bool is_virtual() const;

 private:
  friend class Memory;
  std::shared_ptr<Memory> memory_;
  void* data_;
  int64_t bytes_;
  size_t size_class_;
  Category category_;
  Pool pool_;
  std::shared_ptr<void> owner_;  // of an adopted block
  StepArena::Ticket ticket_;
};

/// The allocator of one rank. Thread safe: communication and I/O workers free buffers too.
class Memory : public std::enable_shared_from_this<Memory> {
 public:
  static std::shared_ptr<Memory> create() { return std::shared_ptr<Memory>(new Memory(false)); }
  /// Hands out address space that costs nothing until it is touched, so that a program can be run for its ledger alone:
  /// kernels that compute nothing, zero() and copy() leave it alone, a few values may be written and read as usual.
  static std::shared_ptr<Memory> create_virtual() { return std::shared_ptr<Memory>(new Memory(true)); }
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  /// A block of at least `bytes` bytes (counted rounded up to 64), contents undefined. DeviceError when refused.
  std::shared_ptr<Buffer> allocate(int64_t bytes, Category category, Pool pool = Pool::device);
  /// The same, all zero. What comes fresh from the system is so already and is not touched: its pages cost time when
  /// they are first used, by the threads that use them.
  std::shared_ptr<Buffer> allocate_zeroed(int64_t bytes, Category category, Pool pool = Pool::device);

  /// A block that somebody else made, such as one that processes share: it is counted as if it were allocated, and
  /// `owner`, whose get() is its address, goes with the last reference. DeviceError when refused.
  std::shared_ptr<Buffer> adopt(std::shared_ptr<void> owner, int64_t bytes, Category category,
                                Pool pool = Pool::device);

  MemoryLedger& ledger() { return ledger_; }
  const MemoryLedger& ledger() const { return ledger_; }
  bool is_virtual() const { return virtual_; }
  /// Refuses, with MemoryLimitError, what would bring the device pool above `bytes`; 0 = no limit.
  void set_limit(int64_t bytes);
  /// How often the system was asked for memory: constant in a steady state.
  int64_t system_allocations() const;

  /// Brackets the work of a training step, which the calling thread does: see StepArena.
  class Step {
   public:
    explicit Step(Memory& memory);
    ~Step();
    Step(const Step&) = delete;
    Step& operator=(const Step&) = delete;

   private:
    Memory& memory_;
  };
  /// Bytes that the step's arena takes beyond the most that was alive in it at once; 0 before there is one.
  int64_t fragmentation() const;

 private:
  explicit Memory(bool is_virtual) : virtual_(is_virtual) {}
  friend class Buffer;
  void release(const Buffer& buffer);
  /// Under mutex_: refuses what the budget does not hold, and books the rest.
  void require_room(int64_t bytes, Category category, Pool pool) const;
  void book(int64_t bytes, Category category, Pool pool);
  struct Block {
    void* data = nullptr;
    bool zeroed = false;  // fresh from the system, which clears what it gives
  };
  Block take_block(size_t size_class, Pool pool);
  std::pair<std::shared_ptr<Buffer>, bool> take(int64_t bytes, Category category,
                                                Pool pool);  // and whether it is zeroed
  void end_step();
  /// Gives the unused blocks back to the system that steps get from the arena from now on.
  void drop_replaced_blocks();
  [[noreturn]] void refuse(int64_t bytes, Category category) const;
  /// "4 x 512.0 MiB activations, ...": the buffers that take most together.
  std::string largest_buffers() const;

  const bool virtual_;
  MemoryLedger ledger_;
  mutable std::mutex mutex_;
  int64_t limit_ = 0;
  std::map<std::pair<int64_t, Category>, int64_t> alive_;             // buffers of the device pool by size and category
  using FreeBlocks = std::unordered_map<size_t, std::vector<void*>>;  // by size class
  std::array<FreeBlocks, kNumPools> free_;
  int64_t system_allocations_ = 0;
  StepArena arena_;
  void* arena_block_ = nullptr;
  int64_t arena_bytes_ = 0;
};

}  // namespace nought
