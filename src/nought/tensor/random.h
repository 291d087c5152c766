// Counter-based random numbers: the i-th value is a function of (key, i), whatever rank or thread asks for it.
//
// Philox 4x32-10, after Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3" (SC 2011).
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <string_view>

namespace nought {

using Philox = std::array<uint32_t, 4>;

/// Four random 32-bit words for a key and a 128-bit counter.
constexpr Philox philox(uint64_t key, uint64_t counter_low, uint64_t counter_high = 0) {
  Philox c{static_cast<uint32_t>(counter_low), static_cast<uint32_t>(counter_low >> 32),
           static_cast<uint32_t>(counter_high), static_cast<uint32_t>(counter_high >> 32)};
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53} * c[0], p1 = uint64_t{0xCD9E8D57} * c[2];
    c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k0, static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k1, static_cast<uint32_t>(p0)};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c;
}

/// A 64-bit FNV-1a hash, the same on every machine and in every run. It turns a parameter's name into a key.
constexpr uint64_t stable_hash(std::string_view text, uint64_t seed = 0) {
  uint64_t hash = 0xCBF29CE484222325ull ^ (seed * 0x9E3779B97F4A7C15ull);
  for (char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001B3ull;
  return hash;
}

/// Uniform in (0, 1]: never 0, so that its logarithm is finite.
inline double to_unit(uint32_t bits) { return (static_cast<double>(bits) + 1.0) * 0x1p-32; }

/// The index-th standard normal value of the key (Box-Muller; index picks the counter and the lane).
inline double normal_at(uint64_t key, uint64_t index) {
  const Philox r = philox(key, index / 2);
  const size_t lane = 2 * (index % 2);
  return std::sqrt(-2.0 * std::log(to_unit(r[lane]))) * std::cos(2.0 * std::numbers::pi * to_unit(r[lane + 1]));
}

/// The index-th uniform value in (0, 1] of the key.
inline double uniform_at(uint64_t key, uint64_t index) { return to_unit(philox(key, index / 4)[index % 4]); }

}  // namespace nought
