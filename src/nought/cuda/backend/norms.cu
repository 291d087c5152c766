#include <type_traits>

#include "nought/cuda/backend/columns.h"
#include "nought/cuda/backend/operations.h"

namespace nought::cuda {
namespace {

struct NormRows {
  int64_t rows = 0, n = 0;
};
NormRows rows_of(const Tensor& x) { return {x.rows(), x.dim(-1)}; }

/// Addresses of what a norm has, by the names of its operation; null for what is not there.
template <class T>
struct NormArrays {
  using Real = accumulator_t<T>;
  const T *x = nullptr, *weight = nullptr, *bias = nullptr, *dy = nullptr;
  T *y = nullptr, *dx = nullptr;
  const Real *squares = nullptr, *products = nullptr;
  Real *mean = nullptr, *rstd = nullptr;
};

/// What a norm is asked for beside its operands.
struct NormOptions {
  double eps = 0, weight_offset = 0;
  int64_t width = 0;
  bool accumulate_x = false;
};

/// A team has a row: a warp if it is short, so that its threads have something to do.
constexpr int64_t kShortRow = 2048;
template <class Team>
__device__ int64_t first_row() {
  return (int64_t{blockIdx.x} * kThreads + threadIdx.x) / Team::kSize;
}
template <class Team>
__device__ int64_t rows_at_once() {
  return int64_t{gridDim.x} * (kThreads / Team::kSize);
}
/// Reads the packs of a row each time that they are asked for.
template <class T, class TeamOf>
struct ReadAgain {
  using Team = TeamOf;
  const T* row;
  bool aligned;
  __device__ ReadAgain(const T* row, int64_t /*n*/, bool aligned) : row(row), aligned(aligned) {}
  template <int kCount>
  __device__ Values<T, kCount> values(int /*piece*/, int64_t begin) const {
    return Values<T, kCount>(row + begin, aligned);
  }
  /// Calls f(piece, begin, count) for the packs of this thread and what is left over.
  template <class F>
  __device__ static void for_each(int64_t n, const F& f) {
    for_each_pack<kPackOf<T>, Team>(n, [&](int64_t begin, auto count) { f(0, begin, count); });
  }
};
/// Keeps a thread's packs of a row in registers, at most kPieces: of a row of whole packs, and of at most kMost
/// elements.
template <class T, class TeamOf, int kPieces>
struct KeepRow {
  using Team = TeamOf;
  static constexpr int kWidth = kPackOf<T>;
  static constexpr int64_t kMost = int64_t{kPieces} * TeamOf::kSize * kWidth;
  Pack<T, kWidth> packs[kPieces];
  __device__ KeepRow(const T* row, int64_t n, bool /*aligned*/) {
    for_each(n, [&](int piece, int64_t begin, auto /*count*/) { packs[piece] = load<kWidth>(row + begin); });
  }
  template <int kCount>
  __device__ Values<T, kCount> values(int piece, int64_t /*begin*/) const {
    return Values<T, kCount>(packs[piece]);
  }
  template <class F>
  __device__ static void for_each(int64_t n, const F& f) {
    NOUGHT_UNROLL
    for (int piece = 0; piece < kPieces; ++piece) {
      const int64_t begin = (int64_t{piece} * Team::kSize + Team::number()) * kWidth;
      if (begin < n) f(piece, begin, std::integral_constant<int, kWidth>());
    }
  }
};

/// The sum of f(x) over the elements of a row, in every thread of the team.
template <class Real, class Rows, class F>
__device__ Real sum_of(const Rows& row, int64_t n, const F& f) {
  Real sum = 0;
  Rows::for_each(n, [&](int piece, int64_t begin, auto count) {
    constexpr int kCount = decltype(count)::value;
    const auto values = row.template values<kCount>(piece, begin);
    for (int k = 0; k < kCount; ++k) sum += f(values[k]);
  });
  return Rows::Team::sum(sum);
}

/// Calls start(blocks, team) with the type of the threads that have a row.
template <class Start>
void with_team(const NormRows& size, const Start& start) {
  if (size.n <= kShortRow)
    start(blocks_for(size.rows), std::type_identity<WarpTeam>());
  else
    start(size.rows, std::type_identity<BlockTeam>());
}
/// Calls start(blocks, rows) with the type of rows that serves: a team keeps its row if it can. Backward that would be
/// two rows, whose registers leave fewer warps: it costs more than reading them again (GPT-2's step on an H200: 4.6 ms
/// kept, 2.8 ms read again).
template <class T, class Start>
void with_rows(const NormRows& size, bool aligned, const Start& start) {
  with_team(size, [&](int64_t blocks, auto team) {
    using Team = typename decltype(team)::type;
    const bool keeps = aligned && size.n % kPackOf<T> == 0;
    if (keeps && size.n <= KeepRow<T, Team, 4>::kMost)
      start(blocks, std::type_identity<KeepRow<T, Team, 4>>());
    else if (keeps && size.n <= KeepRow<T, Team, 8>::kMost)
      start(blocks, std::type_identity<KeepRow<T, Team, 8>>());
    else
      start(blocks, std::type_identity<ReadAgain<T, Team>>());
  });
}

template <class T>
T* address_of(const Tensor& tensor) {
  return array_of(tensor).as<T>();
}

/// Writes elements [begin, begin + kCount) of a row.
template <class T, int kCount>
__device__ void write(T* row, int64_t begin, bool aligned, const accumulator_t<T>* values) {
  if constexpr (kCount > 1) {
    Pack<T, kCount> pack;
    for (int k = 0; k < kCount; ++k) pack.values[k] = static_cast<T>(values[k]);
    store(row + begin, pack, aligned);
  } else {
    row[begin] = static_cast<T>(values[0]);
  }
}

template <class T, class Rows>
__global__ void __launch_bounds__(kThreads)
    rms_norm_kernel(NormArrays<T> a, NormOptions options, NormRows size, bool aligned) {
  using Real = accumulator_t<T>;
  using Team = typename Rows::Team;
  const int64_t n = size.n;
  const auto* const squares = a.squares;
  for (int64_t row = first_row<Team>(); row < size.rows; row += rows_at_once<Team>()) {
    const Rows x(a.x + row * n, n, aligned);
    const Real sum = squares != nullptr ? squares[row] : sum_of<Real>(x, n, [](Real value) { return value * value; });
    const Real rstd =
        1 / sqrt(sum / static_cast<Real>(squares != nullptr ? options.width : n) + static_cast<Real>(options.eps));
    if (Team::number() == 0) a.rstd[row] = rstd;
    Rows::for_each(n, [&](int piece, int64_t begin, auto count) {
      constexpr int kCount = decltype(count)::value;
      const Values<T, kCount> values = x.template values<kCount>(piece, begin), weight(a.weight + begin, aligned);
      Real y[kCount];
      for (int k = 0; k < kCount; ++k) y[k] = values[k] * rstd * (weight[k] + static_cast<Real>(options.weight_offset));
      write<T, kCount>(a.y + row * n, begin, aligned, y);
    });
  }
}

template <class T, class Team>
__global__ void __launch_bounds__(kThreads)
    rms_norm_backward_kernel(NormArrays<T> a, NormOptions options, NormRows size, bool aligned) {
  using Real = accumulator_t<T>;
  using Rows = ReadAgain<T, Team>;
  const int64_t n = size.n;
  const T* const weights = a.weight;
  const auto* const products = a.products;
  const Real offset = static_cast<Real>(options.weight_offset);
  for (int64_t row = first_row<Team>(); row < size.rows; row += rows_at_once<Team>()) {
    const Rows x(a.x + row * n, n, aligned), dy(a.dy + row * n, n, aligned);
    T* const dx = a.dx + row * n;
    const Real rstd = a.rstd[row];
    Real projection;  // mean of the normalised x times its gradient: what moving along x itself does not change
    if (products != nullptr) {
      projection = products[row] * rstd / static_cast<Real>(options.width);
    } else {
      projection = 0;
      Rows::for_each(n, [&](int piece, int64_t begin, auto count) {
        constexpr int kCount = decltype(count)::value;
        const Values<T, kCount> values = x.template values<kCount>(piece, begin),
                                upstream = dy.template values<kCount>(piece, begin), weight(weights + begin, aligned);
        for (int k = 0; k < kCount; ++k) projection += upstream[k] * (weight[k] + offset) * values[k] * rstd;
      });
      projection = Team::sum(projection) / static_cast<Real>(n);
    }
    Rows::for_each(n, [&](int piece, int64_t begin, auto count) {
      constexpr int kCount = decltype(count)::value;
      const Values<T, kCount> values = x.template values<kCount>(piece, begin),
                              upstream = dy.template values<kCount>(piece, begin), weight(weights + begin, aligned);
      Real gradient[kCount];
      for (int k = 0; k < kCount; ++k) {
        const Real normal = values[k] * rstd;
        gradient[k] = (upstream[k] * (weight[k] + offset) - normal * projection) * rstd;
      }
      if (options.accumulate_x) {
        const Values<T, kCount> before(dx + begin, aligned);
        for (int k = 0; k < kCount; ++k) gradient[k] = before[k] + gradient[k];
      }
      write<T, kCount>(dx, begin, aligned, gradient);
    });
  }
}

template <class T, class Rows>
__global__ void __launch_bounds__(kThreads)
    layer_norm_kernel(NormArrays<T> a, NormOptions options, NormRows size, bool aligned) {
  using Real = accumulator_t<T>;
  using Team = typename Rows::Team;
  const int64_t n = size.n;
  for (int64_t row = first_row<Team>(); row < size.rows; row += rows_at_once<Team>()) {
    const Rows x(a.x + row * n, n, aligned);
    const Real mean = sum_of<Real>(x, n, [](Real value) { return value; }) / static_cast<Real>(n);
    const auto square = [mean](Real value) { return (value - mean) * (value - mean); };
    const Real variance = sum_of<Real>(x, n, square) / static_cast<Real>(n);
    const Real rstd = 1 / sqrt(variance + static_cast<Real>(options.eps));
    if (Team::number() == 0) {
      a.mean[row] = mean;
      a.rstd[row] = rstd;
    }
    Rows::for_each(n, [&](int piece, int64_t begin, auto count) {
      constexpr int kCount = decltype(count)::value;
      const Values<T, kCount> values = x.template values<kCount>(piece, begin), weight(a.weight + begin, aligned),
                              bias(a.bias + begin, aligned);
      Real y[kCount];
      for (int k = 0; k < kCount; ++k) y[k] = (values[k] - mean) * rstd * weight[k] + bias[k];
      write<T, kCount>(a.y + row * n, begin, aligned, y);
    });
  }
}

template <class T, class Team>
__global__ void __launch_bounds__(kThreads)
    layer_norm_backward_kernel(NormArrays<T> a, NormOptions options, NormRows size, bool aligned) {
  using Real = accumulator_t<T>;
  using Rows = ReadAgain<T, Team>;
  const int64_t n = size.n;
  const T* const weights = a.weight;
  for (int64_t row = first_row<Team>(); row < size.rows; row += rows_at_once<Team>()) {
    const Rows x(a.x + row * n, n, aligned), dy(a.dy + row * n, n, aligned);
    T* const dx = a.dx + row * n;
    const Real mean = a.mean[row], rstd = a.rstd[row];
    // What moving along (1, ..., 1) and along x does not change.
    Real shift = 0, projection = 0;
    Rows::for_each(n, [&](int piece, int64_t begin, auto count) {
      constexpr int kCount = decltype(count)::value;
      const Values<T, kCount> values = x.template values<kCount>(piece, begin),
                              upstream = dy.template values<kCount>(piece, begin), weight(weights + begin, aligned);
      for (int k = 0; k < kCount; ++k) {
        const Real scaled = upstream[k] * weight[k];
        shift += scaled;
        projection += scaled * (values[k] - mean) * rstd;
      }
    });
    shift = Team::sum(shift) / static_cast<Real>(n);
    projection = Team::sum(projection) / static_cast<Real>(n);
    Rows::for_each(n, [&](int piece, int64_t begin, auto count) {
      constexpr int kCount = decltype(count)::value;
      const Values<T, kCount> values = x.template values<kCount>(piece, begin),
                              upstream = dy.template values<kCount>(piece, begin), weight(weights + begin, aligned);
      Real gradient[kCount];
      for (int k = 0; k < kCount; ++k) {
        const Real normal = (values[k] - mean) * rstd;
        gradient[k] = (upstream[k] * weight[k] - shift - normal * projection) * rstd;
      }
      if (options.accumulate_x) {
        const Values<T, kCount> before(dx + begin, aligned);
        for (int k = 0; k < kCount; ++k) gradient[k] = before[k] + gradient[k];
      }
      write<T, kCount>(dx, begin, aligned, gradient);
    });
  }
}

/// The gradients of the weight: the upstream gradient times the normalised x; and of the bias, if kSums is 2.
template <class T, int kSumsOf>
struct WeightGradients {
  using Real = accumulator_t<T>;
  static constexpr int kSums = kSumsOf, kWidth = kPackOf<T>;
  const T *x, *dy;
  const Real *mean, *rstd;  // no mean: null
  int64_t n;
  bool aligned;  // every row
  template <int kCount>
  __device__ void add(int64_t row, int64_t j, Real (&sums)[kSums][kCount]) const {
    const Values<T, kCount> values(x + row * n + j, aligned), upstream(dy + row * n + j, aligned);
    const Real shift = kSums > 1 ? mean[row] : Real{0}, scale = rstd[row];
    for (int k = 0; k < kCount; ++k) {
      sums[0][k] += upstream[k] * ((values[k] - shift) * scale);
      if constexpr (kSums > 1) sums[1][k] += upstream[k];
    }
  }
};

/// True if packs can be used in every row of all of them.
template <class T, class... Addresses>
bool rows_are_aligned(int64_t n, const Addresses*... addresses) {
  return n % kPackOf<T> == 0 && are_aligned(addresses...);
}

}  // namespace

void start(const RmsNorm& op, Place& at) {
  visit_float(op.x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using Real = accumulator_t<T>;
    const NormRows size = rows_of(op.x);
    const NormArrays<T> a{.x = address_of<T>(op.x),
                          .weight = address_of<T>(op.weight),
                          .y = address_of<T>(op.y),
                          .squares = address_of<Real>(op.squares),
                          .rstd = address_of<Real>(op.rstd)};
    const NormOptions options{.eps = op.eps, .weight_offset = op.weight_offset, .width = op.width};
    const bool fits = rows_are_aligned<T>(size.n, a.x, a.weight, a.y);
    with_rows<T>(size, fits, [&](int64_t blocks, auto rows) {
      launch(at.launch, blocks, dim3(kThreads), rms_norm_kernel<T, typename decltype(rows)::type>, a, options, size,
             fits);
    });
  });
}

void start(const RmsNormBackward& op, Place& at) {
  visit_float(op.x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using Real = accumulator_t<T>;
    const NormRows size = rows_of(op.x);
    const NormArrays<T> a{.x = address_of<T>(op.x),
                          .weight = address_of<T>(op.weight),
                          .dy = address_of<T>(op.dy),
                          .dx = address_of<T>(op.dx),
                          .products = address_of<Real>(op.products),
                          .rstd = address_of<Real>(op.rstd)};
    const NormOptions options{.weight_offset = op.weight_offset, .width = op.width, .accumulate_x = op.accumulate_x};
    // First: dx may be dy.
    const bool aligned = rows_are_aligned<T>(size.n, a.x, a.dy);
    sum_columns(at.launch, size.rows, size.n, WeightGradients<T, 1>{a.x, a.dy, nullptr, a.rstd, size.n, aligned},
                static_cast<Real*>(at.room()), array_of(op.d_weight), op.accumulate_weight);
    const bool fits = rows_are_aligned<T>(size.n, a.x, a.weight, a.dy, a.dx);
    with_team(size, [&](int64_t blocks, auto team) {
      launch(at.launch, blocks, dim3(kThreads), rms_norm_backward_kernel<T, typename decltype(team)::type>, a, options,
             size, fits);
    });
  });
}

void start(const LayerNorm& op, Place& at) {
  visit_float(op.x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using Real = accumulator_t<T>;
    const NormRows size = rows_of(op.x);
    const NormArrays<T> a{.x = address_of<T>(op.x),
                          .weight = address_of<T>(op.weight),
                          .bias = address_of<T>(op.bias),
                          .y = address_of<T>(op.y),
                          .mean = address_of<Real>(op.mean),
                          .rstd = address_of<Real>(op.rstd)};
    const bool fits = rows_are_aligned<T>(size.n, a.x, a.weight, a.bias, a.y);
    with_rows<T>(size, fits, [&](int64_t blocks, auto rows) {
      launch(at.launch, blocks, dim3(kThreads), layer_norm_kernel<T, typename decltype(rows)::type>, a,
             NormOptions{.eps = op.eps}, size, fits);
    });
  });
}

void start(const LayerNormBackward& op, Place& at) {
  visit_float(op.x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using Real = accumulator_t<T>;
    const NormRows size = rows_of(op.x);
    const NormArrays<T> a{.x = address_of<T>(op.x),
                          .weight = address_of<T>(op.weight),
                          .dy = address_of<T>(op.dy),
                          .dx = address_of<T>(op.dx),
                          .mean = address_of<Real>(op.mean),
                          .rstd = address_of<Real>(op.rstd)};
    // First: dx may be dy.
    const bool aligned = rows_are_aligned<T>(size.n, a.x, a.dy);
    auto* const parts = static_cast<Real*>(at.room());
    sum_chunks(at.launch, size.rows, size.n, WeightGradients<T, 2>{a.x, a.dy, a.mean, a.rstd, size.n, aligned}, parts);
    add_columns(at.launch, size.rows, size.n, parts, array_of(op.d_weight), op.accumulate_weight);
    add_columns(at.launch, size.rows, size.n, parts + room_of_columns(size.rows, size.n), array_of(op.d_bias),
                op.accumulate_weight);
    const bool fits = rows_are_aligned<T>(size.n, a.x, a.weight, a.dy, a.dx);
    with_team(size, [&](int64_t blocks, auto team) {
      launch(at.launch, blocks, dim3(kThreads), layer_norm_backward_kernel<T, typename decltype(team)::type>, a,
             NormOptions{.accumulate_x = op.accumulate_x}, size, fits);
    });
  });
}

}  // namespace nought::cuda
