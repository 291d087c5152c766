#include "nought/comm/streaming.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace nought {

void copy_streaming(void* to, const void* from, size_t bytes) {
#ifdef __SSE2__
  constexpr size_t kLine = 64;
  const auto* source = static_cast<const std::byte*>(from);
  auto* target = static_cast<std::byte*>(to);
  const size_t head = std::min(bytes, -std::bit_cast<size_t>(target) % kLine);
  if (head > 0) std::memcpy(target, source, head);
  size_t done = head;
  for (; done + kLine <= bytes; done += kLine)
    for (size_t i = done; i < done + kLine; i += sizeof(__m128i))
      _mm_stream_si128(reinterpret_cast<__m128i*>(target + i),
                       _mm_loadu_si128(reinterpret_cast<const __m128i*>(source + i)));
  if (done < bytes) std::memcpy(target + done, source + done, bytes - done);
  _mm_sfence();
#else
  if (bytes > 0) std::memcpy(to, from, bytes);
#endif
}

void StoreChoice::copy(void* to, const void* from, size_t bytes) {
  constexpr size_t kLeastMeasured = 16 << 10;
  if (bytes < kLeastMeasured) {
    if (bytes > 0) std::memcpy(to, from, bytes);
    return;
  }
  const auto begin = std::chrono::steady_clock::now();
  if (streaming()) {
    copy_streaming(to, from, bytes);
  } else {
    std::memcpy(to, from, bytes);
  }
  took(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / static_cast<double>(bytes));
}

void StoreChoice::took(double seconds_per_byte) {
  double& cost = costs_[streaming() ? 1 : 0];
  // It falls at once and rises slowly: one interruption decides nothing.
  cost = cost == 0 ? seconds_per_byte : std::min(seconds_per_byte, 1.5 * cost);
  ++chunks_;
}

}  // namespace nought
