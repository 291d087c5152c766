#include "nought/kernels/limits.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <limits>
#include <memory>
#include <numeric>
#include <vector>

#include "nought/kernels/cpu/amx.h"
#include "nought/kernels/cpu/parallel.h"
#include "nought/kernels/isa.h"

#if defined(__x86_64__)
#include "nought/kernels/cpu/intrinsics.h"
#endif

namespace nought {

namespace {

using Clock = std::chrono::steady_clock;

/// A loop that does `flops()` floating-point operations per round in registers.
struct Peak {
  std::string_view name;
  double flops;
  void (*run)(int64_t rounds);
};

/// The result of a loop goes here, so that no compiler drops the loop.
thread_local volatile float g_sink;

constexpr int kAccumulators = 12;

#if defined(__x86_64__)
/// x86-64 without FMA: a multiplication and an addition.
void run_sse(int64_t rounds) {
  __m128 sums[kAccumulators];
  for (__m128& sum : sums) sum = _mm_setzero_ps();
  const __m128 a = _mm_set1_ps(1.0F + static_cast<float>(rounds) * 1e-30F), b = _mm_set1_ps(1e-20F);
  for (int64_t i = 0; i < rounds; ++i)
    for (__m128& sum : sums) sum = _mm_add_ps(_mm_mul_ps(sum, a), b);
  __m128 total = sums[0];
  for (int i = 1; i < kAccumulators; ++i) total = _mm_add_ps(total, sums[i]);
  g_sink = _mm_cvtss_f32(total);
}

__attribute__((target("avx2,fma"))) void run_avx2(int64_t rounds) {
  __m256 sums[kAccumulators];
  for (__m256& sum : sums) sum = _mm256_setzero_ps();
  const __m256 a = _mm256_set1_ps(1.0F + static_cast<float>(rounds) * 1e-30F), b = _mm256_set1_ps(1e-20F);
  for (int64_t i = 0; i < rounds; ++i)
    for (__m256& sum : sums) sum = _mm256_fmadd_ps(a, b, sum);
  __m256 total = sums[0];
  for (int i = 1; i < kAccumulators; ++i) total = _mm256_add_ps(total, sums[i]);
  g_sink = _mm256_cvtss_f32(total);
}

NOUGHT_AVX512 void run_avx512(int64_t rounds) {
  __m512 sums[kAccumulators];
  for (__m512& sum : sums) sum = _mm512_setzero_ps();
  const __m512 a = _mm512_set1_ps(1.0F + static_cast<float>(rounds) * 1e-30F), b = _mm512_set1_ps(1e-20F);
  for (int64_t i = 0; i < rounds; ++i)
    for (__m512& sum : sums) sum = _mm512_fmadd_ps(a, b, sum);
  __m512 total = sums[0];
  for (int i = 1; i < kAccumulators; ++i) total = _mm512_add_ps(total, sums[i]);
  g_sink = _mm512_cvtss_f32(total);
}

NOUGHT_AVX512_BF16 void run_avx512_bf16(int64_t rounds) {
  __m512 sums[kAccumulators];
  for (__m512& sum : sums) sum = _mm512_setzero_ps();
  const __m512 wide = _mm512_set1_ps(1.0F + static_cast<float>(rounds) * 1e-30F);
  const __m512bh a = _mm512_cvtne2ps_pbh(wide, wide), b = a;
  for (int64_t i = 0; i < rounds; ++i)
    for (__m512& sum : sums) sum = _mm512_dpbf16_ps(sum, a, b);
  __m512 total = sums[0];
  for (int i = 1; i < kAccumulators; ++i) total = _mm512_add_ps(total, sums[i]);
  g_sink = _mm512_cvtss_f32(total);
}

NOUGHT_AMX void run_amx(int64_t rounds) {
  const cpu::TileSession session(cpu::TileUnit::amx);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_zero(4);
  _tile_zero(5);
  _tile_zero(6);
  _tile_zero(7);
  for (int64_t i = 0; i < rounds; ++i) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  float result[256];
  _tile_stored(0, result, 64);
  g_sink = result[0];
}
#else
void run_scalar(int64_t rounds) {
  float sums[kAccumulators] = {};
  const float a = 1.0F + static_cast<float>(rounds) * 1e-30F, b = 1e-20F;
  for (int64_t i = 0; i < rounds; ++i)
    for (float& sum : sums) sum = sum * a + b;
  g_sink = sums[0];
}
#endif

/// The widest loop for the dtype that this process may run.
Peak choose_peak([[maybe_unused]] DType dtype) {
#if defined(__x86_64__)
  const Isa best = isa();
  if (dtype == DType::bf16 && best == Isa::amx) return {"bf16 tiles on AMX", 4 * 2.0 * 16 * 16 * 32, run_amx};
  if (dtype == DType::bf16 && best == Isa::avx512_bf16)
    return {"bf16 dot products on AVX512-BF16", kAccumulators * 2.0 * 32, run_avx512_bf16};
  if (best >= Isa::avx512) return {"fp32 FMA on AVX-512", kAccumulators * 2.0 * 16, run_avx512};
  if (best >= Isa::avx2) return {"fp32 FMA on AVX2", kAccumulators * 2.0 * 8, run_avx2};
  return {"fp32 on SSE", kAccumulators * 2.0 * 4, run_sse};
#else
  return {"fp32 without vectors", kAccumulators * 2.0, run_scalar};
#endif
}

/// Calls body(thread) on every thread of the team at once; seconds until the last is done.
template <class Body>
double seconds_of_team(const Body& body) {
  const auto start = Clock::now();
  [[maybe_unused]] const int threads = cpu::team_size();
#pragma omp parallel for schedule(static, 1) num_threads(threads)
  for (int thread = 0; thread < threads; ++thread) body(thread);
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Seconds that the calling thread has had a core.
double processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// The rate of the calling thread, by the shortest of several loops.
double measure_thread_peak(const Peak& peak) {
  constexpr double kLeast = 4e-4;  // a loop, long beside what reading the clock takes
  constexpr int kLoops = 5;
  const auto seconds = [&](int64_t rounds) {
    const double start = processor_seconds();
    peak.run(rounds);
    return processor_seconds() - start;
  };
  int64_t rounds = 1 << 12;
  while (seconds(rounds) < kLeast) rounds *= 2;  // and the core leaves its sleep
  double shortest = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kLoops; ++i) shortest = std::min(shortest, seconds(rounds));
  return static_cast<double>(rounds) * peak.flops / shortest;
}

}  // namespace

std::string_view matrix_peak_name(DType dtype) { return choose_peak(dtype).name; }

MatrixPeakSample sample_matrix_peak(DType dtype) {
  const Peak peak = choose_peak(dtype);
  const auto threads = static_cast<size_t>(cpu::team_size());
  std::vector<double> rates(threads), had(threads);
  seconds_of_team([&](int thread) {
    const auto place = static_cast<size_t>(thread);
    const double processor = processor_seconds();
    const auto start = Clock::now();
    rates[place] = measure_thread_peak(peak);
    had[place] = (processor_seconds() - processor) / std::chrono::duration<double>(Clock::now() - start).count();
  });
  const auto sum = [](const std::vector<double>& values) { return std::accumulate(values.begin(), values.end(), 0.0); };
  return {.flops = sum(rates), .threads = static_cast<int>(threads), .had = sum(had) / static_cast<double>(threads)};
}

double measure_matrix_peak(DType dtype) { return sample_matrix_peak(dtype).flops; }

double measure_triad() {
  constexpr int64_t kElements = 8 << 20;  // 64 MiB per array and thread: past any core's share of a cache
  const int threads = cpu::team_size();
  std::vector<std::unique_ptr<double[]>> arrays(static_cast<size_t>(threads));
  const auto fill = [&](int thread) {
    auto& memory = arrays[static_cast<size_t>(thread)];
    memory = std::make_unique<double[]>(3 * kElements);  // zeroed by the thread that will use it
  };
  const auto triad = [&](int thread) {
    double* a = arrays[static_cast<size_t>(thread)].get();
    const double *b = a + kElements, *c = b + kElements;
#pragma omp simd
    for (int64_t i = 0; i < kElements; ++i) a[i] = b[i] + 3.0 * c[i];
  };
  seconds_of_team(fill);
  double best = 0;
  for (int i = 0; i < 3; ++i)
    best = std::max(best, static_cast<double>(3 * kElements * threads) * sizeof(double) / seconds_of_team(triad));
  return best;
}

}  // namespace nought
