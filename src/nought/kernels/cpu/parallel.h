// Splits elements or rows over the calling thread's OpenMP team; without OpenMP, or for little work, runs them inline.
//
// Bodies get intervals whose bounds depend on the number of threads, so a body's result for an element or a row must
// not depend on the interval. Sums over rows are taken in chunks that depend on the shape alone. Bodies must not throw.
#pragma once

#include <algorithm>
#include <cstdint>

#include "nought/base/math.h"

#if defined(_OPENMP)
#include <omp.h>
#endif

namespace nought::cpu {

/// Threads that a parallel loop of the calling thread gets.
inline int team_size() {
#if defined(_OPENMP)
  return omp_get_max_threads();
#else
  return 1;
#endif
}

/// Elements of work below which waking a team costs more than it saves.
inline constexpr int64_t kParallelWork = 32768;

/// Calls body(begin, end) for intervals that cover [0, count), each but the last a multiple of `grain` long.
template <class Body>
void parallel_for(int64_t count, int64_t work_per_item, int64_t grain, const Body& body) {
#if defined(_OPENMP)
  const int64_t threads = team_size();
  if (threads > 1 && count > grain && count * work_per_item >= kParallelWork) {
    const int64_t share = round_up(ceil_div(count, threads), grain);
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < threads; ++i) {
      const int64_t begin = i * share, end = std::min(count, begin + share);
      if (begin < end) body(begin, end);
    }
    return;
  }
#else
  (void)work_per_item, (void)grain;
#endif
  if (count > 0) body(int64_t{0}, count);
}

/// Calls body(begin, end) for intervals that cover n elements. Every thread gets whole cache lines.
template <class Body>
void parallel_elements(int64_t n, const Body& body) {
  parallel_for(n, 1, 64, body);
}

template <class Body>
void parallel_rows(int64_t rows, int64_t row_size, const Body& body) {
  parallel_for(rows, row_size, 1, body);
}

/// How a sum over rows is cut: at most 64 chunks of at least 16 rows, whatever the number of threads.
struct RowChunks {
  explicit RowChunks(int64_t row_count)
      : rows(row_count), chunk(std::max<int64_t>(16, ceil_div(row_count, 64))), count(ceil_div(row_count, chunk)) {}
  Interval operator[](int64_t i) const { return {i * chunk, std::min(rows, (i + 1) * chunk)}; }

  int64_t rows, chunk, count;
};

}  // namespace nought::cpu
