// CUDA C++ as a host compiler reads it: what kernels say, on the fibers of block.h.
//
// Only what our kernels use is here. Its names are those of CUDA, so it is included by cuda_runtime.h of this folder
// alone.
#pragma once

#include <atomic>
#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "cuda_emulation/block.h"
#include <math.h>  // the functions of floats under their C names, as CUDA has them

namespace nought::emulation {

/// Every value of at most 8 bytes that lanes can exchange.
template <class T>
uint64_t bits_of(T value) {
  static_assert(std::is_arithmetic_v<T>);  // threadIdx.x is to be converted first: it would be asked later
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  return bits;
}
template <class T>
T from_bits(uint64_t bits) {
  T value;
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

/// An array of shared memory as a kernel sees it: each access is checked.
template <class T>
class Shared {
 public:
  explicit Shared(SharedArray& array) : array_(&array) {}

  class Element {
   public:
    Element(SharedArray& array, size_t i) : array_(array), i_(i) {}
    operator T() const {  // NOLINT(google-explicit-constructor): it reads as the element does
      Block::current().check_read(array_, i_);
      return from_bytes();
    }
    const Element& operator=(T value) const {  // NOLINT: as of the element
      Block::current().check_write(array_, i_);
      std::memcpy(array_.bytes.data() + i_ * sizeof(T), &value, sizeof(T));
      return *this;
    }
    const Element& operator=(const Element& other) const { return *this = static_cast<T>(other); }
    const Element& operator+=(T value) const { return *this = static_cast<T>(static_cast<T>(*this) + value); }

   private:
    T from_bytes() const {
      T value;
      std::memcpy(&value, array_.bytes.data() + i_ * sizeof(T), sizeof(T));
      return value;
    }
    SharedArray& array_;
    size_t i_;
  };

  template <class I>
  Element operator[](I i) const {
    return {*array_, static_cast<size_t>(i)};
  }

 private:
  SharedArray* array_;
};

/// An address for each type.
template <class T>
inline constexpr char kTypeKey = 0;

template <class T>
Shared<T> shared(size_t count, NOUGHT_CALLER) {
  static_assert(std::is_trivially_copyable_v<T>);
  return Shared<T>(Block::current().shared(&kTypeKey<T>, sizeof(T), count, {file, line}));
}
/// What the launch asked for, beside the arrays that the kernel declares.
template <class T>
Shared<T> dynamic_shared() {
  Block& block = Block::current();
  return Shared<T>(block.shared(&kTypeKey<T>, sizeof(T), block.dynamic_bytes() / sizeof(T), {}));
}

/// The pointer, which must be a multiple of `bytes`, as vector loads and stores demand.
template <class P>
P aligned(P pointer, size_t bytes, NOUGHT_CALLER) {
  require<KernelError>(std::bit_cast<uintptr_t>(pointer) % bytes == 0, "{}:{}: an address is no multiple of {}", file,
                       line, bytes);
  return pointer;
}

/// threadIdx and its like: what they are is asked when they are read.
template <auto kAsk>
struct Coordinates {
  struct X {
    operator unsigned() const { return kAsk().x; }  // NOLINT(google-explicit-constructor)
  } x{};
  struct Y {
    operator unsigned() const { return kAsk().y; }  // NOLINT(google-explicit-constructor)
  } y{};
  struct Z {
    operator unsigned() const { return kAsk().z; }  // NOLINT(google-explicit-constructor)
  } z{};
};
inline Index thread_index() { return Block::current().thread(); }
inline Index block_index() { return Block::current().index(); }
inline Size block_size() { return Block::current().size(); }
inline Size grid_size() { return Block::current().grid(); }

/// Shuffles and votes wait for the lanes and order no memory: that is what __syncwarp is for.
template <class T>
T exchanged(uint32_t mask, T value, int source, const Where& where) {
  const auto& given = Block::current().exchange(mask, bits_of(value), where, kOrdersNothing);
  if ((mask >> source & 1u) == 0)
    fail<KernelError>("line {}: a lane reads from lane {}, which is not in the mask", where.line, source);
  return from_bits<T>(given[static_cast<size_t>(source)]);
}

template <class T, class F>
T atomically(T* address, F&& change) {
  const std::atomic_ref<T> value(*address);
  T before = value.load();
  while (!value.compare_exchange_weak(before, change(before))) {
  }
  return before;
}

}  // namespace nought::emulation

// --- the words of CUDA ---

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)

inline constexpr nought::emulation::Coordinates<nought::emulation::thread_index> threadIdx;
inline constexpr nought::emulation::Coordinates<nought::emulation::block_index> blockIdx;
inline constexpr nought::emulation::Coordinates<nought::emulation::block_size> blockDim;
inline constexpr nought::emulation::Coordinates<nought::emulation::grid_size> gridDim;

/// Arrays of shared memory are declared by these, and by CUDA's own words on a GPU (kernel.h).
#define NOUGHT_SHARED(T, name, count) const ::nought::emulation::Shared<T> name = ::nought::emulation::shared<T>(count)
#define NOUGHT_DYNAMIC_SHARED(T, name) \
  const ::nought::emulation::Shared<T> name = ::nought::emulation::dynamic_shared<T>()
#define __builtin_assume_aligned(pointer, bytes) ::nought::emulation::aligned(pointer, bytes)

inline void __syncthreads(NOUGHT_CALLER) { nought::emulation::Block::current().barrier({file, line}); }
inline void __syncwarp(uint32_t mask = ~0u, NOUGHT_CALLER) {
  nought::emulation::Block::current().exchange(mask, 0, {file, line});
}

template <class T>
T __shfl_xor_sync(uint32_t mask, T value, int lanes, NOUGHT_CALLER) {
  return nought::emulation::exchanged(mask, value, nought::emulation::Block::current().lane() ^ lanes, {file, line});
}
template <class T>
T __shfl_sync(uint32_t mask, T value, int source, NOUGHT_CALLER) {
  return nought::emulation::exchanged(mask, value, source % nought::emulation::kWarp, {file, line});
}
/// Lanes without a source keep their own.
template <class T>
T __shfl_down_sync(uint32_t mask, T value, unsigned delta, NOUGHT_CALLER) {
  const int lane = nought::emulation::Block::current().lane(), source = lane + static_cast<int>(delta);
  return nought::emulation::exchanged(mask, value, source < nought::emulation::kWarp ? source : lane, {file, line});
}
inline uint32_t __ballot_sync(uint32_t mask, bool vote, NOUGHT_CALLER) {
  const auto& votes =
      nought::emulation::Block::current().exchange(mask, vote, {file, line}, nought::emulation::kOrdersNothing);
  uint32_t lanes = 0;
  for (uint32_t lane = 0; lane < nought::emulation::kWarp; ++lane)
    if ((mask >> lane & 1u) != 0 && votes[lane] != 0) lanes |= 1u << lane;
  return lanes;
}
inline int __any_sync(uint32_t mask, bool vote, NOUGHT_CALLER) { return __ballot_sync(mask, vote, file, line) != 0; }
inline int __all_sync(uint32_t mask, bool vote, NOUGHT_CALLER) { return __ballot_sync(mask, vote, file, line) == mask; }
inline uint32_t __activemask() { return nought::emulation::Block::current().active_lanes(); }

// A sum of floats by atomics depends on the order of threads: the orders of the tests show it.
template <class T>
T atomicAdd(T* address, std::type_identity_t<T> value) {
  return nought::emulation::atomically(address, [&](T before) { return before + value; });
}
template <class T>
T atomicMax(T* address, std::type_identity_t<T> value) {
  return nought::emulation::atomically(address, [&](T before) { return before < value ? value : before; });
}
template <class T>
T atomicCAS(T* address, std::type_identity_t<T> expected, std::type_identity_t<T> value) {
  return nought::emulation::atomically(address, [&](T before) { return before == expected ? value : before; });
}
