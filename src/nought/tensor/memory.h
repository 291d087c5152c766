// Accounted memory: every Buffer has a category and a pool from its birth, and one ledger per rank counts what is
// alive.
//
// Design goals: every byte of tensor data is in the ledger. Freed blocks are kept and reused, and those of a training
// step lie in an arena (arena.h), so that a steady step asks the system for nothing and leaves no gaps. A refused
// allocation explains itself.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "nought/base/error.h"
#include "nought/tensor/arena.h"
#include "nought/tensor/device.h"
#include "nought/tensor/pool.h"

namespace nought {

/// What a buffer is for.
enum class Category : uint8_t {
  parameters,     // weights that are computed with: whole, sharded or gathered
  gradients,      // gradients of parameters
  optimizer,      // master weights and the optimizer's states
  activations,    // values and gradients of the forward and the backward pass
  communication,  // buffers of collectives
  workspace,      // room that an operation needs while it runs
  kv_cache,       // keys and values of generation
  checkpoint      // copies of states that are saved while the training goes on
};
inline constexpr int kNumCategories = 8;
std::string_view name_of(Category category);

/// Counts the bytes that are alive, now and at their peak, by category and pool. Thread safe.
class MemoryLedger {
 public:
  void add(Category category, Pool pool, int64_t bytes);
  void remove(Category category, Pool pool, int64_t bytes);

  int64_t current(Category category, Pool pool = Pool::device) const;
  /// The largest value that this category alone reached.
  int64_t peak(Category category, Pool pool = Pool::device) const;
  int64_t current_total(Pool pool = Pool::device) const;
  /// The largest sum over all categories.
  int64_t peak_total(Pool pool = Pool::device) const;
  /// The largest sum of the device and the host pool.
  int64_t peak_device_and_host() const;
  /// What this category held when peak_total() was reached.
  int64_t at_peak(Category category, Pool pool = Pool::device) const;
  /// Counts bytes that are copied from one pool to another.
  void add_moved(Pool from, Pool to, int64_t bytes);
  int64_t moved(Pool from, Pool to) const;
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
  int64_t device_and_host() const;
  int64_t peak_device_and_host_ = 0;
  std::array<std::array<int64_t, kNumPools>, kNumPools> moved_{};
};

/// An allocation would exceed the budget that was set for the pool. The message shows what is alive.
class MemoryLimitError : public DeviceError {
 public:
  using DeviceError::DeviceError;
};

class Memory;

/// A block of memory, aligned as its device says (64 bytes at least). It returns to its Memory when the last reference
/// to it goes.
///
/// On a device that the host has no access to, tensors hold one Buffer, with an address that nobody can use, and work
/// in flight holds another one behind it, with the address that kernels use. The block returns when both are gone.
class Buffer {
 public:
  /// Memory makes Buffers. With an `owner`, the block is one that the Memory adopted.
  Buffer(std::shared_ptr<Memory> memory, void* data, int64_t bytes, size_t size_class, Category category, Pool pool,
         std::shared_ptr<void> owner = nullptr);
  /// The Buffer that tensors hold for `behind`, at another address.
  Buffer(std::shared_ptr<Buffer> behind, std::byte* address);
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  std::byte* data() const { return static_cast<std::byte*>(data_); }
  int64_t bytes() const { return bytes_; }
  Category category() const { return category_; }
  Pool pool() const { return pool_; }
  /// True if it is address space without contents: see Memory::create_virtual().
  bool is_virtual() const;
  Memory& memory() const { return *memory_; }
  /// The block as kernels address it; null if they use this address, as the host does.
  const std::shared_ptr<Buffer>& behind() const { return behind_; }

 private:
  friend class Memory;
  std::shared_ptr<Memory> memory_;
  void* data_;
  int64_t bytes_;
  size_t size_class_;
  Category category_;
  Pool pool_;
  std::shared_ptr<void> owner_;  // null unless the block was adopted
  std::shared_ptr<Buffer> behind_;
  StepArena::Ticket ticket_;
};

/// The allocator of one rank, on its device. Thread safe: communication and I/O workers free buffers too.
class Memory : public std::enable_shared_from_this<Memory> {
 public:
  static std::shared_ptr<Memory> create(std::shared_ptr<Device> device = cpu_device()) {
    return std::shared_ptr<Memory>(new Memory(std::move(device), false));
  }
  /// A Memory whose buffers are address space, which costs nothing until it is touched. A program can be run on it for
  /// its ledger alone: with kernels that compute nothing, and with zero() and copy(), which do nothing on such buffers.
  /// Single values may be written and read as usual.
  static std::shared_ptr<Memory> create_virtual(std::shared_ptr<Device> device = cpu_device()) {
    return std::shared_ptr<Memory>(new Memory(std::move(device), true));
  }
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  Device& device() const { return *device_; }
  /// Where host code makes what kernels read: in the device's own memory if it has access to it, else in RAM.
  Pool host_pool() const { return device_->is_host() ? Pool::device : Pool::host; }

  /// A block of `bytes` bytes, rounded up to a multiple of the alignment, with undefined contents. DeviceError if it is
  /// refused, and for Pool::file, which no allocator serves.
  std::shared_ptr<Buffer> allocate(int64_t bytes, Category category, Pool pool = Pool::device);
  /// A block as allocate() gives it, all zero. A block that comes fresh from the system is zero already and is not
  /// touched here, so that the threads that use its pages are the ones that first touch them. DeviceError if the host
  /// has no access to the pool.
  std::shared_ptr<Buffer> allocate_zeroed(int64_t bytes, Category category, Pool pool = Pool::device);

  /// A block that was made elsewhere, such as one that processes share. It is counted as if it were allocated here.
  /// owner.get() is its address; the owner is released with the last reference. DeviceError if it is refused.
  std::shared_ptr<Buffer> adopt(std::shared_ptr<void> owner, int64_t bytes, Category category,
                                Pool pool = Pool::device);

  MemoryLedger& ledger() { return ledger_; }
  const MemoryLedger& ledger() const { return ledger_; }
  bool is_virtual() const { return virtual_; }
  /// Sets a budget in bytes, 0 = no limit: that of the device pool; or with Pool::host that of the host's RAM, where
  /// the host pool is, and the device pool if the device is the host. An allocation beyond it throws MemoryLimitError.
  void set_limit(int64_t bytes, Pool pool = Pool::device);
  /// The most that was in the host's RAM at once.
  int64_t peak_in_ram() const {
    return device_->is_host() ? ledger_.peak_device_and_host() : ledger_.peak_total(Pool::host);
  }
  /// How often the system was asked for memory. Steps in a steady state do not raise it.
  int64_t system_allocations() const;

  /// Brackets the work of one training step on the calling thread: see StepArena.
  class Step {
   public:
    explicit Step(Memory& memory);
    ~Step();
    Step(const Step&) = delete;
    Step& operator=(const Step&) = delete;

   private:
    Memory& memory_;
  };
  /// How many bytes the step's arena is larger than the most that is in use in it at once; 0 before there is an arena.
  int64_t fragmentation() const;

 private:
  Memory(std::shared_ptr<Device> device, bool is_virtual) : device_(std::move(device)), virtual_(is_virtual) {}
  friend class Buffer;
  void release(const Buffer& buffer);
  /// Under mutex_: refuses what the budget does not hold, and books the rest.
  void require_room(int64_t bytes, Category category, Pool pool) const;
  void book(int64_t bytes, Category category, Pool pool);
  struct Block {
    void* data = nullptr;
    bool zeroed = false;  // fresh from a system that clears what it gives
  };
  Device& device_of(Pool pool) const;
  /// What a buffer of so many bytes is counted as.
  int64_t counted_bytes(int64_t bytes, Pool pool) const;
  Block take_block(size_t size_class, Pool pool);
  /// A buffer, and whether it is known to be zero.
  std::pair<std::shared_ptr<Buffer>, bool> take(int64_t bytes, Category category, Pool pool);
  void end_step();
  /// Gives free blocks back to the system whose successors will lie in the arena.
  void drop_replaced_blocks();
  /// Whether the pool is in the host's RAM.
  bool in_ram(Pool pool) const { return pool == Pool::host || (pool == Pool::device && device_->is_host()); }
  int64_t used_of_ram() const;
  [[noreturn]] void refuse(int64_t bytes, Category category, Pool budget) const;
  /// "4 x 512.0 MiB activations, ...": the buffers that take most together of what the budget of a pool is for.
  std::string largest_buffers(Pool budget) const;

  const std::shared_ptr<Device> device_;
  const bool virtual_;
  MemoryLedger ledger_;
  mutable std::mutex mutex_;
  int64_t device_limit_ = 0, ram_limit_ = 0;
  std::map<std::tuple<int64_t, Category, Pool>, int64_t> alive_;      // how many buffers
  using FreeBlocks = std::unordered_map<size_t, std::vector<void*>>;  // by size class
  std::array<FreeBlocks, kNumPools> free_;
  int64_t system_allocations_ = 0;
  StepArena arena_;
  void* arena_block_ = nullptr;
  int64_t arena_bytes_ = 0;
};

}  // namespace nought
