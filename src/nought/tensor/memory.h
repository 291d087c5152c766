// Accounted memory: every Buffer is born with a category and a pool, and one ledger per rank keeps what is alive.
//
// Design goals: no byte of tensor data outside the ledger; freed blocks are kept and reused, so that a steady training
// step asks the system for nothing; a refused allocation explains itself.
// Non-goals: sub-allocation inside a block, returning memory to the system before the Memory dies.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace nought {

enum class Category : uint8_t { parameters, gradients, optimizer, activations, communication, workspace, kv_cache };
inline constexpr int kNumCategories = 7;
std::string_view name_of(Category category);

/// Where bytes live: the compute device, the host beside it, or a file (NVMe). On a CPU device, device memory is RAM.
enum class Pool : uint8_t { device, host, file };
inline constexpr int kNumPools = 3;
std::string_view name_of(Pool pool);

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

class Memory;

/// A block of bytes, 64-byte aligned, owned until the last reference goes; then it returns to its Memory.
class Buffer {
 public:
  Buffer(std::shared_ptr<Memory> memory, void* data, int64_t bytes, size_t size_class, Category category, Pool pool);
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  std::byte* data() const { return static_cast<std::byte*>(data_); }
  int64_t bytes() const { return bytes_; }
  Category category() const { return category_; }
  Pool pool() const { return pool_; }

 private:
  std::shared_ptr<Memory> memory_;
  void* data_;
  int64_t bytes_;
  size_t size_class_;
  Category category_;
  Pool pool_;
};

/// The allocator of one rank. Thread safe: communication and I/O workers free buffers too.
class Memory : public std::enable_shared_from_this<Memory> {
 public:
  static std::shared_ptr<Memory> create() { return std::shared_ptr<Memory>(new Memory); }
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  /// A block of at least `bytes` bytes (counted rounded up to 64), contents undefined. DeviceError when refused.
  std::shared_ptr<Buffer> allocate(int64_t bytes, Category category, Pool pool = Pool::device);

  MemoryLedger& ledger() { return ledger_; }
  const MemoryLedger& ledger() const { return ledger_; }
  /// How often the system was asked for memory: constant in a steady state.
  int64_t system_allocations() const;

 private:
  Memory() = default;
  friend class Buffer;
  void release(void* data, size_t size_class);

  MemoryLedger ledger_;
  mutable std::mutex mutex_;
  std::unordered_map<size_t, std::vector<void*>> free_;
  int64_t system_allocations_ = 0;
};

}  // namespace nought
