// Isa: the instruction set that this process computes with.
//
// Design goals: own kernels and Highway obey one cap, so that a capped process computes, bit for bit, what a
// process on a smaller CPU computes; instructions that the CPU lacks are refused before they run. Non-goals: caps for
// single operations; CPUs other than x86-64 (they are `baseline`).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace nought {

/// Instruction sets. Each includes those before it.
enum class Isa : uint8_t {
  baseline,      // SSE, or the vectors of another architecture
  avx2,          // with FMA, BMI2 and F16C
  avx512,        // F, BW, CD, DQ and VL
  avx512_bf16,   // dot products of bf16
  amx_emulated,  // AMX's tiles in plain arithmetic, with the bits of AMX: for tests where there is none
  amx            // tiles of bf16
};

/// "avx512_bf16": as in the environment variable NOUGHT_ISA.
std::string_view name_of(Isa isa);
/// The inverse; nothing for other words.
std::optional<Isa> isa_named(std::string_view name);

/// The most that the CPU and the operating system offer. Never amx_emulated.
Isa cpu_isa();
/// The fastest of what they offer: cpu_isa(), but avx512 on Intel's CPUs without AMX. Their AVX512-BF16 multiplies half
/// as many bf16 values per second as fp32 FMA does fp32 values. It is chosen by what the CPU is, never by a clock, so
/// that the bits of a run do not depend on a measurement.
Isa fastest_isa();
/// What this process uses: fastest_isa(), but at most what the environment variable NOUGHT_ISA names and what
/// limit_isa() was told. avx512_bf16 and amx_emulated are used where NOUGHT_ISA names them and the CPU has avx512_bf16.
/// ConfigError if the variable holds another word.
Isa isa();
/// Caps isa() for the rest of the process. Call it before the first kernel, so that all run on one set.
void limit_isa(Isa most);

/// Makes Highway obey NOUGHT_ISA, once, and returns the set that it leaves it. Initialisers that run
/// before main() call it, so that the first kernel finds the cap. A word that isa() refuses is no cap here.
Isa cap_highway_at_start();

/// Whether this process multiplies bf16 matrices by instructions for bf16. Where it does not, they are widened to fp32.
inline bool has_bf16_units() { return isa() >= Isa::avx512_bf16; }
/// DeviceError that says what is missing, unless has_bf16_units().
void require_bf16_units();
/// What this CPU has for bf16, as the end of a sentence: "bf16 dot products (AVX512-BF16)", "no bf16 units".
std::string_view describe_bf16_units();

/// The names of /proc/cpuinfo for what CPUID says of this CPU: "avx2", "fma", "avx512_bf16" and the like.
std::vector<std::string> cpu_features();
/// The CPU's name by CPUID; empty where it has none.
std::string cpu_model();

}  // namespace nought
