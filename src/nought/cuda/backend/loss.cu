#include "nought/cuda/backend/functions.h"
#include "nought/cuda/backend/operations.h"

namespace nought::cuda {
namespace {

template <class T>
struct LossArrays {
  using Real = accumulator_t<T>;
  T* logits;
  const int32_t* targets;
  const float* weights;  // null: 1
  Real* loss;
  int64_t rows, n;
  bool gradient, aligned;
  double gradient_scale;
  int32_t ignore_index;
};

/// The largest of a block's values, in every thread; what is not a number is left out.
template <class T>
__device__ T block_max(T value) {
  NOUGHT_SHARED(T, parts, kThreads / kWarpSize);
  for (int lanes = kWarpSize / 2; lanes > 0; lanes /= 2) {
    const T other = __shfl_xor_sync(kAllLanes, value, lanes);
    value = other > value ? other : value;
  }
  __syncthreads();  // an earlier one has been read
  if (threadIdx.x % kWarpSize == 0) parts[threadIdx.x / kWarpSize] = value;
  __syncthreads();
  T largest = parts[0];
  for (int warp = 1; warp < kThreads / kWarpSize; ++warp) {
    const T other = parts[warp];
    largest = other > largest ? other : largest;
  }
  return largest;
}

/// e^x for x <= 88. Logits of 16 bits take the device's power of 2, those of fp32 the CPU's polynomial.
template <class T>
__device__ accumulator_t<T> exponential_for(accumulator_t<T> x) {
  if constexpr (sizeof(T) == 2) {
    return power_of_2(x * kLog2E);
  } else {
    return exponential_of(x);
  }
}

/// The largest of some logits, and the sum of all exponentials beside it.
template <class Real>
struct LogSum {
  Real largest = -static_cast<Real>(INFINITY), sum = 0;
};

/// A row's, in every thread: each has taken its logits once.
template <class T>
__device__ LogSum<accumulator_t<T>> log_sum_of(const T* logits, int64_t n, bool aligned) {
  using Real = accumulator_t<T>;
  LogSum<Real> own;
  for_each_pack<kPackOf<T>>(n, [&](int64_t begin, auto count) {
    constexpr int kCount = decltype(count)::value;
    const Values<T, kCount> x(logits + begin, aligned);
    Real largest = own.largest;
    for (int k = 0; k < kCount; ++k) largest = x[k] > largest ? x[k] : largest;
    if (largest > own.largest) {
      own.sum *= exponential_for<T>(own.largest - largest);
      own.largest = largest;
    }
    const Real shift = largest == -static_cast<Real>(INFINITY) ? Real{0} : largest;
    for (int k = 0; k < kCount; ++k) own.sum += exponential_for<T>(x[k] - shift);
  });
  LogSum<Real> all{block_max(own.largest), 0};
  const bool has_any = own.largest > -static_cast<Real>(INFINITY);  // else the sum is 0, or NaN
  all.sum = block_sum(has_any ? own.sum * exponential_for<T>(own.largest - all.largest) : own.sum);
  return all;
}

/// The loss of a row, in every thread. The logits become their gradient if that is asked for.
template <class T>
__device__ void cross_entropy_row(const LossArrays<T>& a, int64_t row, int32_t target, float weight) {
  using Real = accumulator_t<T>;
  constexpr int kWidth = kPackOf<T>;
  T* const logits = a.logits + row * a.n;
  const LogSum<Real> all = log_sum_of(static_cast<const T*>(logits), a.n, a.aligned);
  const Real largest = all.largest, sum = all.sum;
  const bool is_there = target >= 0 && target < a.n;  // else its loss is NaN
  const Real at_target = is_there ? Real{logits[target]} - largest : static_cast<Real>(nanf(""));
  // Where the target has most of the sum, its own exponential's error is the sum's.
  const double share = static_cast<double>(exponential_of(at_target)) / static_cast<double>(sum);
  const double loss = share > 0.5 ? -log(share) : log(static_cast<double>(sum)) - static_cast<double>(at_target);
  if (threadIdx.x == 0) a.loss[row] = static_cast<Real>(loss * double{weight});
  if (!a.gradient) return;
  __syncthreads();  // all have read the target's logit
  const double scale = a.gradient_scale * double{weight};
  const Real factor = static_cast<Real>(scale / static_cast<double>(sum));
  for_each_pack<kWidth>(a.n, [&](int64_t begin, auto count) {
    constexpr int kCount = decltype(count)::value;
    const Values<T, kCount> x(logits + begin, a.aligned);
    Real d[kCount];
    for (int k = 0; k < kCount; ++k)
      d[k] = begin + k == target ? static_cast<Real>((share - 1) * scale) : exponential_for<T>(x[k] - largest) * factor;
    write_values<T, kCount>(logits + begin, a.aligned, d);
  });
}

/// A block has a row.
template <class T>
__global__ void __launch_bounds__(kThreads) cross_entropy_kernel(LossArrays<T> a) {
  for (int64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
    const int32_t target = a.targets[row];
    const float weight = a.weights != nullptr ? a.weights[row] : 1;
    if (target != a.ignore_index && weight != 0) {
      cross_entropy_row(a, row, target, weight);
      continue;
    }
    if (threadIdx.x == 0) a.loss[row] = 0;
    if (!a.gradient) continue;
    for (int64_t j = threadIdx.x; j < a.n; j += kThreads) a.logits[row * a.n + j] = T{};
  }
}

template <class T>
struct DivergenceArrays {
  using Real = accumulator_t<T>;
  T* logits;
  const T* teacher;
  const int32_t* targets;
  Real* loss;
  int64_t rows, n;
  bool gradient, aligned;
  double gradient_scale, beta;
  int32_t ignore_index;
};

/// Logarithms of what student and teacher say, over what each is compared with.
template <class Real>
struct LogRatios {
  Real s, t;              // of the probabilities themselves
  Real student, teacher;  // of the ratios

  __device__ LogRatios(Real s, Real t, double beta) : s(s), t(t), student(s - t), teacher(t - s) {
    if (beta <= 0 || beta >= 1) return;
    const Real a = s + static_cast<Real>(log(1 - beta)), b = t + static_cast<Real>(log(beta));
    const Real largest = a > b ? a : b, apart = a > b ? b - a : a - b;
    const Real mixture = largest + static_cast<Real>(log(1.0 + static_cast<double>(exponential_of(apart))));
    student = s - mixture, teacher = t - mixture;
  }
};

/// The divergence of a row. The logits become their gradient if that is asked for.
template <class T>
__device__ void divergence_row(const DivergenceArrays<T>& a, int64_t row) {
  using Real = accumulator_t<T>;
  T* const logits = a.logits + row * a.n;
  const T* const teacher = a.teacher + row * a.n;
  const LogSum<Real> own = log_sum_of(static_cast<const T*>(logits), a.n, a.aligned),
                     other = log_sum_of(teacher, a.n, a.aligned);
  const Real own_sum = own.largest + static_cast<Real>(log(static_cast<double>(own.sum))),
             other_sum = other.largest + static_cast<Real>(log(static_cast<double>(other.sum)));
  const auto ratios_at = [&](int64_t j) {
    return LogRatios<Real>(Real{logits[j]} - own_sum, Real{teacher[j]} - other_sum, a.beta);
  };
  Real of_student = 0, of_teacher = 0;
  for (int64_t j = threadIdx.x; j < a.n; j += kThreads) {
    const LogRatios<Real> at = ratios_at(j);
    of_student += exponential_of(at.s) * at.student;
    of_teacher += exponential_of(at.t) * at.teacher;
  }
  of_student = block_sum(of_student), of_teacher = block_sum(of_teacher);
  const Real beta = static_cast<Real>(a.beta);
  if (threadIdx.x == 0)
    a.loss[row] = a.beta <= 0 ? of_teacher : a.beta >= 1 ? of_student : beta * of_teacher + (1 - beta) * of_student;
  if (!a.gradient) return;
  const Real scale = static_cast<Real>(a.gradient_scale), factor = a.beta < 1 ? scale * (1 - beta) : scale;
  for (int64_t j = threadIdx.x; j < a.n; j += kThreads) {  // each thread reads and writes what is its own
    const LogRatios<Real> at = ratios_at(j);
    const Real s = exponential_of(at.s);
    logits[j] =
        static_cast<T>(a.beta <= 0 ? scale * (s - exponential_of(at.t)) : factor * s * (at.student - of_student));
  }
}

/// A block has a row.
template <class T>
__global__ void __launch_bounds__(kThreads) divergence_kernel(DivergenceArrays<T> a) {
  for (int64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
    if (a.targets[row] != a.ignore_index) {
      divergence_row(a, row);
      continue;
    }
    if (threadIdx.x == 0) a.loss[row] = 0;
    if (!a.gradient) continue;
    for (int64_t j = threadIdx.x; j < a.n; j += kThreads) a.logits[row * a.n + j] = T{};
  }
}

}  // namespace

void start(const JensenShannon& op, Place& at) {
  const int64_t rows = op.logits.rows(), n = op.logits.dim(-1);
  visit_float(op.logits.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* const logits = op.logits.data<T>();
    const T* const teacher = op.teacher.data<T>();
    const DivergenceArrays<T> arrays{.logits = logits,
                                     .teacher = teacher,
                                     .targets = op.targets.data<int32_t>(),
                                     .loss = op.loss.data<accumulator_t<T>>(),
                                     .rows = rows,
                                     .n = n,
                                     .gradient = op.gradient,
                                     .aligned = packs_fit<kPackOf<T>>(n, logits) && packs_fit<kPackOf<T>>(n, teacher),
                                     .gradient_scale = op.gradient_scale,
                                     .beta = op.beta,
                                     .ignore_index = op.ignore_index};
    launch(at.launch, rows, dim3(kThreads), divergence_kernel<T>, arrays);
  });
}

void start(const CrossEntropy& op, Place& at) {
  const int64_t rows = op.logits.rows(), n = op.logits.dim(-1);
  visit_float(op.logits.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using Real = accumulator_t<T>;
    T* const logits = op.logits.data<T>();
    const LossArrays<T> arrays{.logits = logits,
                               .targets = op.targets.data<int32_t>(),
                               .weights = op.weights ? op.weights.data<float>() : nullptr,
                               .loss = op.loss.data<Real>(),
                               .rows = rows,
                               .n = n,
                               .gradient = op.gradient,
                               .aligned = packs_fit<kPackOf<T>>(n, logits),
                               .gradient_scale = op.gradient_scale,
                               .ignore_index = op.ignore_index};
    launch(at.launch, rows, dim3(kThreads), cross_entropy_kernel<T>, arrays);
  });
}

}  // namespace nought::cuda
