// One block of an emulated kernel: its threads as fibers of the calling thread, its barriers, warps and shared memory.
//
// Design goals: what is undefined on a GPU is an error here, with the source line: a barrier that some threads never
// reach, two barriers at once, a lane that is missing in a shuffle, shared memory that is read before it is written,
// outside of its array, or by another thread without a barrier between. The order of threads, and that of blocks, can
// be chosen, so that what depends on it changes its bits.
// Non-goals: threads that wait for other blocks, time.
#pragma once

#include <array>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string_view>
#include <vector>

#include "cuda_emulation/fiber.h"

#include "nought/base/error.h"

namespace nought::emulation {

/// A mistake of a kernel.
class KernelError : public DeviceError {
 public:
  using DeviceError::DeviceError;
};

inline constexpr int kWarp = 32;
/// An exchange between lanes orders nothing.
inline constexpr bool kOrdersNothing = false;

/// A line of a kernel. clang 14 has no std::source_location.
struct Where {
  const char* file = "";
  unsigned line = 0;
};
/// The last parameters of what a kernel calls: where it does.
#define NOUGHT_CALLER const char *file = __builtin_FILE(), unsigned line = __builtin_LINE()

struct Index {
  unsigned x = 0, y = 0, z = 0;
};
struct Size {
  unsigned x = 1, y = 1, z = 1;
  constexpr unsigned count() const { return x * y * z; }
};

/// In which order threads and blocks run where nothing orders them: 0 forward, 1 backward, others by a random number
/// generator that has it as its seed.
using Order = uint32_t;
/// The numbers 0 to count - 1 in that order; `random` is of the order, and goes on.
void arrange(std::vector<int>& numbers, int count, Order order, std::mt19937& random);

/// What is known of one element of shared memory: who has written and read it last, and when.
struct Shadow {
  int writer = -1, reader = -1;                     // threads; several readers are lanes_of() their warp, or kSeveral
  int64_t written = -1, read = -1;                  // barriers of the block before
  int64_t written_in_warp = -1, read_in_warp = -1;  // synchronisations of the warp before
  bool is_initialised = false;

  static constexpr int kSeveral = -2;
  static constexpr int lanes_of(int warp) { return -3 - warp; }
  static constexpr int warp_of(int lanes) { return -3 - lanes; }
};

/// An array of shared memory, as the block keeps it.
struct SharedArray {
  std::vector<std::byte> bytes;
  std::vector<Shadow> shadows;
  size_t element = 0;
  Where where;
};

class Block {
 public:
  /// Runs `body` once for each thread. KernelError, or what a thread throws.
  static void run(const Size& grid, const Size& block, const Index& index, size_t dynamic_bytes, Order order,
                  const std::function<void()>& body);
  /// The block of the calling thread.
  static Block& current();

  Index thread() const { return threads_[static_cast<size_t>(running_)]->index; }
  const Index& index() const { return index_; }
  const Size& size() const { return size_; }
  const Size& grid() const { return grid_; }

  void barrier(const Where& where);
  /// Waits until all lanes of the mask are here; then gives what each of them has brought, by lane.
  /// Memory is in order behind it, if `orders`.
  const std::array<uint64_t, kWarp>& exchange(uint32_t mask, uint64_t value, const Where& where, bool orders = true);
  int lane() const { return running_ % kWarp; }
  /// The lanes whose threads have not ended.
  uint32_t active_lanes() const;

  /// The array that is declared there; `type` tells the instances of a template apart.
  SharedArray& shared(const void* type, size_t element, size_t count, const Where& where);
  size_t dynamic_bytes() const { return dynamic_bytes_; }

  /// A copy that the calling thread has begun: it is made when the thread waits for its group.
  void begin_copy(std::function<void()> copy);
  void end_group_of_copies();
  /// Makes the copies of all groups of the calling thread but the last `left`.
  void make_copies(size_t left);
  void check_read(SharedArray& array, size_t i);
  void check_write(SharedArray& array, size_t i);

 private:
  enum class State : uint8_t { ready, at_barrier, in_warp, ended };
  struct Thread {
    Fiber fiber;
    Block* block = nullptr;
    Index index;
    State state = State::ready;
    Where where;
    uint32_t mask = 0;
    bool orders = true;
    std::vector<std::vector<std::function<void()>>> copies;  // by group; the last one is open
  };
  struct Warp {
    std::array<uint64_t, kWarp> brought{}, given{};
    int64_t synchronisations = 0;
  };

  Block(const Size& grid, const Size& block, const Index& index, size_t dynamic_bytes,
        const std::function<void()>& body);
  /// The fibers of the calling thread, which blocks use one after the other.
  static std::vector<std::unique_ptr<Thread>>& kept_threads();
  static void run_thread(void* thread);
  void run_all(Order order);
  bool release_barrier();
  bool release_warps();
  void wait(State state, const Where& where);
  [[noreturn]] void refuse_to_hang() const;
  Warp& warp() { return warps_[static_cast<size_t>(running_ / kWarp)]; }
  bool in_order(int other, int64_t block_time, int64_t warp_time) const;
  [[noreturn]] void refuse(const SharedArray& array, size_t i, std::string_view what, int other) const;

  Size grid_, size_;
  Index index_;
  size_t dynamic_bytes_;
  const std::function<void()>& body_;
  std::vector<std::unique_ptr<Thread>>& threads_;  // kept by the thread for its next block
  std::vector<Warp> warps_;
  std::map<std::pair<const void*, unsigned>, SharedArray> arrays_;  // by type and line
  int count_ = 0, running_ = 0;
  int64_t barriers_ = 0;
  size_t shared_bytes_ = 0;
  std::exception_ptr failure_;
};

}  // namespace nought::emulation
