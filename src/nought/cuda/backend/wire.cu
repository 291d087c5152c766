// Records of codes that ranks send to each other (kernels/ops/wire.h). A warp codes a block of elements; what reads or
// writes a record does it by words of four bytes, of which every part of a record is a whole number.
//
// All arithmetic is fp32. Products and sums are fused where kernels/cpu/wire.cpp fuses them; for tensors of f64, which
// the reference computes on the CPU, they are not. So records, sums and errors have the bits of the CPU.
#include "nought/cuda/backend/functions.h"
#include "nought/cuda/backend/operations.h"
#include "nought/kernels/wire_records.h"

namespace nought::cuda {
namespace {

inline constexpr int64_t kWord = 4;  // bytes
inline constexpr int kQuad = 4;

/// Four neighbours of a part. Parts and blocks of codes have a whole number of quads.
template <class T>
struct alignas(sizeof(T) < 4 ? 8 : 16) Quad {
  T values[kQuad];
};
template <class T>
__device__ Quad<T> load_quad(const T* from, bool aligned) {
  if (aligned) return *reinterpret_cast<const Quad<T>*>(__builtin_assume_aligned(from, alignof(Quad<T>)));
  Quad<T> quad;
  for (int e = 0; e < kQuad; ++e) quad.values[e] = from[e];
  return quad;
}
template <class T>
__device__ void store_quad(T* to, const Quad<T>& quad, bool aligned) {
  if (aligned) {
    *reinterpret_cast<Quad<T>*>(__builtin_assume_aligned(to, alignof(Quad<T>))) = quad;
  } else {
    for (int e = 0; e < kQuad; ++e) to[e] = quad.values[e];
  }
}
template <class T>
bool quads_fit(const T* address) {
  return reinterpret_cast<uintptr_t>(address) % alignof(Quad<T>) == 0;
}

/// Records, which lie anywhere.
struct Records {
  std::byte* at;
  WireBlocks blocks;  // They cut each part.
  int64_t bytes;      // A record has so many.
  int bits;
  bool in_words;  // at a multiple of four

  Records(const Tensor& records, WireBlocks parts, int width)
      : at(records.raw()),
        blocks(parts),
        bytes(wire_record_bytes(parts.numel, width)),
        bits(width),
        in_words(reinterpret_cast<uintptr_t>(at) % kWord == 0) {}

  __device__ uint32_t word(const std::byte* from) const {
    if (in_words) return *reinterpret_cast<const uint32_t*>(__builtin_assume_aligned(from, kWord));
    uint32_t word = 0;
    for (int byte = 0; byte < kWord; ++byte) word |= static_cast<uint32_t>(from[byte]) << 8 * byte;
    return word;
  }
  __device__ void put_word(std::byte* to, uint32_t word) const {
    if (in_words) {
      *reinterpret_cast<uint32_t*>(__builtin_assume_aligned(to, kWord)) = word;
    } else {
      for (int byte = 0; byte < kWord; ++byte) to[byte] = static_cast<std::byte>(word >> 8 * byte & 255u);
    }
  }
};

/// a * b + c as the CPU has it for tensors of T.
template <class T>
__device__ float added(float a, float b, float c) {
  if constexpr (std::is_same_v<T, double>) {
    return a * b + c;
  } else {
    return multiply_add(a, b, c);
  }
}

// --- from values to records ---

template <class T>
struct Encoding {
  const T* x;
  T* error;  // null: none
  Records records;
  int64_t hosts;
  float beta;
  bool in_quads;  // x and error

  __device__ std::byte* record_of_part(int64_t part) const {
    return records.at + record_of(part, records.blocks.parts, hosts) * records.bytes;
  }
  __device__ float value(T element, T error_of_it) const {
    const auto wide = static_cast<float>(element);
    return error != nullptr ? wide + static_cast<float>(error_of_it) : wide;
  }
  /// The error of an element behind it: `before`, and what was lost on the way from h to `sent`.
  __device__ T error_behind(T before, float h, float sent) const {
    return static_cast<T>(added<T>(beta, static_cast<float>(before), (1 - beta) * (h - sent)));
  }
};

/// The quads of a block that a lane has: those whose codes share a word. So many, if the block is whole.
inline constexpr int kQuadsOfLane = static_cast<int>(kWireBlock / kQuad / kWarpSize);

/// Number k of them. Of 8 bits a quad fills a word. Of 4 bits a word has one of either half of the block, and the one
/// of the lower half is the word's number.
template <int kBits>
__device__ int64_t quad_of(int lane, int k, int64_t quads) {
  if constexpr (kBits == 8) {
    return lane + k * kWarpSize;
  } else {
    const int64_t word = lane + k / 2 * kWarpSize, half = quads / 2;
    return word < half ? word + k % 2 * half : quads;
  }
}

template <int kBits>
__device__ int code_of(float h, float factor) {
  constexpr auto kLimit = static_cast<float>(1 << (kBits - 1));
  if (isnan(factor)) return 0;
  return static_cast<int>(fminf(fmaxf(rintf(h * factor), -kLimit), kLimit - 1));
}

template <int kBits, class T>
__global__ void __launch_bounds__(kThreads) encode_codes_kernel(Encoding<T> a) {
  const WireBlocks blocks = a.records.blocks;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int64_t warps = threads_of_grid() / kWarpSize;
  for (int64_t number = thread_of_grid() / kWarpSize; number < blocks.count(); number += warps) {
    const WireBlock block = blocks[number];
    const int64_t first = block.part * blocks.numel + block.begin, quads = block.count / kQuad;
    float h[kQuadsOfLane][kQuad] = {};
    uint32_t largest = 0;  // as bits, which are ordered as magnitudes are
    for (int k = 0; k < kQuadsOfLane; ++k) {
      const int64_t quad = quad_of<kBits>(lane, k, quads);
      if (quad >= quads) continue;
      const Quad<T> x = load_quad(a.x + first + quad * kQuad, a.in_quads);
      const Quad<T> error = a.error != nullptr ? load_quad(a.error + first + quad * kQuad, a.in_quads) : Quad<T>{};
      for (int e = 0; e < kQuad; ++e) {
        h[k][e] = a.value(x.values[e], error.values[e]);
        const uint32_t magnitude = std::bit_cast<uint32_t>(h[k][e]) & 0x7FFFFFFFu;
        largest = magnitude > largest ? magnitude : largest;
      }
    }
    largest = warp_max(largest);
    const float factor = wire_factor(largest, kBits), scale = wire_scale(largest, kBits);
    std::byte* const record = a.record_of_part(block.part);
    std::byte* const codes = codes_in(record, block, kBits);
    if (lane == 0) a.records.put_word(scale_in(record, block, blocks.numel, kBits), std::bit_cast<uint32_t>(scale));
    for (int k = 0; k < kQuadsOfLane; k += 8 / kBits) {
      const int64_t word_number = quad_of<kBits>(lane, k, quads);
      if (word_number >= quads) continue;
      uint32_t word = 0;
      for (int e = 0; e < kQuad; ++e) {
        uint32_t byte = static_cast<uint32_t>(code_of<kBits>(h[k][e], factor)) & 255u;
        if constexpr (kBits == 4)
          byte = (byte & 15u) | (static_cast<uint32_t>(code_of<kBits>(h[k + 1][e], factor)) & 15u) << 4;
        word |= byte << 8 * e;
      }
      a.records.put_word(codes + word_number * kWord, word);
    }
    if (a.error == nullptr || isnan(scale)) continue;
    for (int k = 0; k < kQuadsOfLane; ++k) {
      const int64_t quad = quad_of<kBits>(lane, k, quads);
      if (quad >= quads) continue;
      Quad<T> error = load_quad(a.error + first + quad * kQuad, a.in_quads);
      for (int e = 0; e < kQuad; ++e) {
        const float sent = static_cast<float>(code_of<kBits>(h[k][e], factor)) * scale;
        error.values[e] = a.error_behind(error.values[e], h[k][e], sent);
      }
      store_quad(a.error + first + quad * kQuad, error, a.in_quads);
    }
  }
}

/// Records without scales: a thread has a word.
template <int kBits, class T>
__global__ void __launch_bounds__(kThreads) encode_values_kernel(Encoding<T> a) {
  constexpr int kEach = 32 / kBits;  // elements of a word
  const WireBlocks blocks = a.records.blocks;
  const int64_t words = blocks.numel / kEach;
  for (int64_t i = thread_of_grid(); i < blocks.parts * words; i += threads_of_grid()) {
    const int64_t part = i / words, number = i % words, first = part * blocks.numel + number * kEach;
    uint32_t word = 0;
    for (int e = 0; e < kEach; ++e) {
      const T before = a.error != nullptr ? a.error[first + e] : T{};
      const float h = a.value(a.x[first + e], before);
      float sent = h;
      if constexpr (kBits == 32) {
        word = std::bit_cast<uint32_t>(h);
      } else {
        const bf16_t narrow(h);
        word |= uint32_t{narrow.bits} << 16 * e;
        sent = narrow;
      }
      if (a.error != nullptr) a.error[first + e] = a.error_behind(before, h, sent);
    }
    a.records.put_word(a.record_of_part(part) + number * kWord, word);
  }
}

// --- and back ---

template <class T>
struct Decoding {
  Records records;
  T* y;
  int64_t terms;
  bool in_quads;  // y

  __device__ const std::byte* record(int64_t term, int64_t part) const {
    return records.at + (term * records.blocks.parts + part) * records.bytes;
  }
};

/// A thread has a quad.
template <int kBits, class T>
__global__ void __launch_bounds__(kThreads) decode_codes_kernel(Decoding<T> a) {
  const WireBlocks blocks = a.records.blocks;
  const int64_t quads = blocks.numel / kQuad;
  for (int64_t i = thread_of_grid(); i < blocks.parts * quads; i += threads_of_grid()) {
    const int64_t part = i / quads, element = i % quads * kQuad;
    const WireBlock block = blocks[part * blocks.per_part() + element / kWireBlock];
    const int64_t within = element - block.begin, half = block.count / 2;
    const bool upper = kBits == 4 && within >= half;
    const int shift = upper ? 4 : 0;
    float sum[kQuad] = {};
    for (int64_t term = 0; term < a.terms; ++term) {
      const std::byte* const record = a.record(term, part);
      const auto scale = std::bit_cast<float>(
          a.records.word(record + wire_code_bytes(blocks.numel, kBits) + block.begin / kWireBlock * kWord));
      const uint32_t word =
          a.records.word(record + wire_code_bytes(block.begin, kBits) + (upper ? within - half : within));
      for (int e = 0; e < kQuad; ++e) {
        const auto bits = static_cast<int>(word >> (8 * e + shift) & ((1u << kBits) - 1));
        const auto code = static_cast<float>(bits >= 1 << (kBits - 1) ? bits - (1 << kBits) : bits);
        sum[e] = term == 0 ? code * scale : added<T>(code, scale, sum[e]);
      }
    }
    Quad<T> y;
    for (int e = 0; e < kQuad; ++e) y.values[e] = static_cast<T>(sum[e]);
    store_quad(a.y + part * blocks.numel + element, y, a.in_quads);
  }
}

/// A thread has a word.
template <int kBits, class T>
__global__ void __launch_bounds__(kThreads) decode_values_kernel(Decoding<T> a) {
  constexpr int kEach = 32 / kBits;
  const WireBlocks blocks = a.records.blocks;
  const int64_t words = blocks.numel / kEach;
  for (int64_t i = thread_of_grid(); i < blocks.parts * words; i += threads_of_grid()) {
    const int64_t part = i / words, number = i % words;
    float sum[kEach] = {};
    for (int64_t term = 0; term < a.terms; ++term) {
      const uint32_t word = a.records.word(a.record(term, part) + number * kWord);
      for (int e = 0; e < kEach; ++e) {
        const uint32_t bits = kBits == 32 ? word : word >> 16 * e << 16;  // bf16 is the upper half of fp32
        const auto value = std::bit_cast<float>(bits);
        sum[e] = term == 0 ? value : sum[e] + value;
      }
    }
    for (int e = 0; e < kEach; ++e) a.y[part * blocks.numel + number * kEach + e] = static_cast<T>(sum[e]);
  }
}

int64_t blocks_of_threads(int64_t threads) { return ceil_div(threads, kThreads); }

template <class F>
void visit_width(int bits, const F& f) {
  switch (bits) {
    case 4:
      return f(std::integral_constant<int, 4>());
    case 8:
      return f(std::integral_constant<int, 8>());
    case 16:
      return f(std::integral_constant<int, 16>());
    default:
      return f(std::integral_constant<int, 32>());
  }
}

}  // namespace

void start(const EncodeWire& op, Place& at) {
  visit_float(op.x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* const x = op.x.data<T>();
    T* const error = op.error ? op.error.data<T>() : nullptr;
    const Encoding<T> encoding{.x = x,
                               .error = error,
                               .records = {op.records, blocks_of(op), op.bits},
                               .hosts = op.hosts,
                               .beta = static_cast<float>(op.beta),
                               .in_quads = quads_fit(x) && quads_fit(error)};
    const WireBlocks blocks = encoding.records.blocks;
    visit_width(op.bits, [&](auto width) {
      constexpr int kBits = decltype(width)::value;
      if constexpr (has_wire_scales(kBits)) {
        launch(at.launch, blocks_for(blocks.count()), dim3(kThreads), encode_codes_kernel<kBits, T>, encoding);
      } else {
        launch(at.launch, blocks_of_threads(blocks.parts * blocks.numel * kBits / 32), dim3(kThreads),
               encode_values_kernel<kBits, T>, encoding);
      }
    });
  });
}

void start(const DecodeWire& op, Place& at) {
  visit_float(op.y.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* const y = op.y.data<T>();
    const Decoding<T> decoding{
        .records = {op.records, blocks_of(op), op.bits}, .y = y, .terms = op.terms, .in_quads = quads_fit(y)};
    const int64_t elements = op.y.numel();
    visit_width(op.bits, [&](auto width) {
      constexpr int kBits = decltype(width)::value;
      if constexpr (has_wire_scales(kBits)) {
        launch(at.launch, blocks_of_threads(elements / kQuad), dim3(kThreads), decode_codes_kernel<kBits, T>, decoding);
      } else {
        launch(at.launch, blocks_of_threads(elements * kBits / 32), dim3(kThreads), decode_values_kernel<kBits, T>,
               decoding);
      }
    });
  });
}

}  // namespace nought::cuda
