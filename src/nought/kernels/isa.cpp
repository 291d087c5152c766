#include "nought/kernels/isa.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>

#include <hwy/targets.h>

#include "nought/base/error.h"
#include "nought/kernels/cpu/amx.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace nought {

namespace {

constexpr std::array<std::string_view, 6> kNames{"baseline", "avx2", "avx512", "avx512_bf16", "amx_emulated", "amx"};

/// Without AMX, whose tiles need the system's permission.
Isa vector_isa() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  const auto has_all = [](auto... has) { return (... && has); };
  if (!has_all(__builtin_cpu_supports("avx2"), __builtin_cpu_supports("fma"), __builtin_cpu_supports("bmi2")))
    return Isa::baseline;
  if (!has_all(__builtin_cpu_supports("avx512f"), __builtin_cpu_supports("avx512bw"),
               __builtin_cpu_supports("avx512cd"), __builtin_cpu_supports("avx512dq"),
               __builtin_cpu_supports("avx512vl")))
    return Isa::avx2;
  return __builtin_cpu_supports("avx512bf16") ? Isa::avx512_bf16 : Isa::avx512;
#else
  return Isa::baseline;
#endif
}

bool is_intel() {
#if defined(__x86_64__)
  return __builtin_cpu_is("intel") != 0;
#else
  return false;
#endif
}

Isa fastest_vector_isa() { return is_intel() ? std::min(vector_isa(), Isa::avx512) : vector_isa(); }

/// The word of NOUGHT_ISA; empty if it is not set.
std::string_view wish() {
  const char* text = std::getenv("NOUGHT_ISA");
  return text == nullptr ? "" : text;
}

/// What Highway must not use.
int64_t forbidden_targets(Isa most) {
  constexpr int64_t kAvx512 = HWY_AVX3 | HWY_AVX3_DL;
  return (most < Isa::avx512 ? kAvx512 : 0) | (most < Isa::avx2 ? HWY_AVX2 : 0);
}

void cap_highway(Isa most) {
  hwy::DisableTargets(forbidden_targets(most));
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

Isa choose_isa() {
  const std::string_view name = wish();
  const std::optional<Isa> cap = name.empty() ? Isa::amx : isa_named(name);
  require<ConfigError>(cap.has_value() && cap != Isa::baseline,
                       "the environment variable NOUGHT_ISA is \"{}\": use avx2, avx512, avx512_bf16, amx or "
                       "amx_emulated, or unset it for the best that this CPU has",
                       name);
  if ((cap == Isa::amx_emulated || cap == Isa::avx512_bf16) && vector_isa() == Isa::avx512_bf16) return *cap;
  return *cap == Isa::amx ? fastest_isa() : std::min(*cap, fastest_vector_isa());
}

std::atomic<Isa>& used_isa() {
  static std::atomic<Isa> used = choose_isa();
  return used;
}

#if defined(__x86_64__)

struct CpuId {
  uint32_t a = 0, b = 0, c = 0, d = 0;

  explicit CpuId(uint32_t leaf, uint32_t part = 0) { __get_cpuid_count(leaf, part, &a, &b, &c, &d); }
};

/// The bits of a register that the operating system saves (XCR0): vectors of 256 bits, of 512 bits, tiles.
bool saves(uint64_t bits) {
  if ((CpuId(1).c >> 27 & 1) == 0) return false;
  uint32_t low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return ((uint64_t{high} << 32 | low) & bits) == bits;
}

#endif

}  // namespace

std::string_view name_of(Isa isa) { return kNames[static_cast<size_t>(isa)]; }

std::optional<Isa> isa_named(std::string_view name) {
  const auto found = std::find(kNames.begin(), kNames.end(), name);
  if (found == kNames.end()) return {};
  return static_cast<Isa>(found - kNames.begin());
}

Isa cpu_isa() {
  static const Isa best = [] {
    const Isa vectors = vector_isa();
    return vectors == Isa::avx512_bf16 && cpu::may_use_amx() && cpu::amx_agrees_with_twin() ? Isa::amx : vectors;
  }();
  return best;
}

Isa fastest_isa() { return cpu_isa() == Isa::amx ? Isa::amx : fastest_vector_isa(); }

Isa cap_highway_at_start() {
  static const Isa most = [] {
    const bool names_bf16 = isa_named(wish()) >= Isa::avx512_bf16;
    const Isa has = names_bf16 || cpu::may_use_amx() ? vector_isa() : fastest_vector_isa();
    const Isa cap = std::min(isa_named(wish()).value_or(Isa::amx), has);
    cap_highway(cap);
    return cap;
  }();
  return most;
}

Isa isa() { return used_isa().load(std::memory_order_relaxed); }

void limit_isa(Isa most) {
  if (isa() <= most) return;
  used_isa() = most;
  cap_highway(most);
}

void require_bf16_units() {
  require<DeviceError>(has_bf16_units(), "this product needs AVX512-BF16, but {}",
                       cpu_isa() < Isa::avx512_bf16 ? std::string("this CPU does not have it")
                                                    : fmt::format("this process uses {}", name_of(isa())));
}

std::string_view describe_bf16_units() {
  switch (isa()) {
    case Isa::amx:
      return "bf16 tiles (AMX)";
    case Isa::amx_emulated:
      return "bf16 tiles (AMX, emulated)";
    case Isa::avx512_bf16:
      return "bf16 dot products (AVX512-BF16)";
    default:
      return cpu_isa() >= Isa::avx512_bf16 ? "bf16 units, but fp32 is faster" : "no bf16 units";
  }
}

#if defined(__x86_64__)

std::vector<std::string> cpu_features() {
  constexpr uint64_t kVectors256 = 0x6, kVectors512 = 0xE6, kTiles = 0x60000;
  const CpuId basic(1), extended(7), more(7, 1);
  const auto bit = [](uint32_t word, int index) { return (word >> index & 1) != 0; };
  const bool v256 = saves(kVectors256), v512 = saves(kVectors512), tiles = saves(kTiles);
  const std::pair<const char*, bool> all[] = {
      {"avx2", v256 && bit(extended.b, 5)},       {"fma", v256 && bit(basic.c, 12)},
      {"f16c", v256 && bit(basic.c, 29)},         {"avx512f", v512 && bit(extended.b, 16)},
      {"avx512bw", v512 && bit(extended.b, 30)},  {"avx512_vnni", v512 && bit(extended.c, 11)},
      {"avx512_bf16", v512 && bit(more.a, 5)},    {"avx512_fp16", v512 && bit(extended.d, 23)},
      {"amx_tile", tiles && bit(extended.d, 24)}, {"amx_bf16", tiles && bit(extended.d, 22)},
      {"amx_int8", tiles && bit(extended.d, 25)}};
  std::vector<std::string> features;
  for (const auto& feature : all)
    if (feature.second) features.emplace_back(feature.first);
  return features;
}

std::string cpu_model() {
  constexpr uint32_t kFirst = 0x80000002, kLast = 0x80000004;
  if (CpuId(0x80000000).a < kLast) return "";
  std::string name;
  for (uint32_t leaf = kFirst; leaf <= kLast; ++leaf) {
    const CpuId part(leaf);
    for (const uint32_t word : {part.a, part.b, part.c, part.d})
      for (int i = 0; i < 4; ++i)
        if (const char letter = static_cast<char>(word >> 8 * i); letter != 0) name += letter;
  }
  const size_t begin = name.find_first_not_of(' '), end = name.find_last_not_of(' ');
  return begin == std::string::npos ? "" : name.substr(begin, end - begin + 1);
}

#else

std::vector<std::string> cpu_features() { return {}; }
std::string cpu_model() { return ""; }

#endif

}  // namespace nought
