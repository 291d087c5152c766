// What the kernel tests share: random tensors, comparisons that know what one rounding costs, gradients by central
// differences, and guards that set the number of threads or the instruction set.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <vector>

#include "support/host_tensors.h"
#include "support/kernel_backend.h"
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include "nought/kernels/cpu/amx.h"
#include "nought/kernels/isa.h"
#include "nought/kernels/kernels.h"
#include "nought/kernels/reference/reference.h"
#include "nought/tensor/random.h"

#if defined(_OPENMP)
#include <omp.h>
#endif

namespace nought::test {

/// The dtypes that the CPU kernels compute in themselves.
inline const std::vector<DType> kCpuDTypes{DType::f32, DType::bf16, DType::f16};

/// The largest relative error of one rounding to nearest.
inline double unit_roundoff(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return 0x1p-24;
    case DType::bf16:
      return 0x1p-8;
    case DType::f16:
      return 0x1p-11;
    default:
      return 0x1p-53;
  }
}

/// `x` rounded to another float dtype.
inline Tensor converted(Memory& memory, const Tensor& x, DType dtype) {
  Tensor y = Tensor::empty(memory, x.shape(), dtype, Category::activations);
  reference::run(Cast{.x = x, .y = y});
  return y;
}

/// The first normal values of a seed, `count` of them or more. Many tests ask for those of the same few seeds.
inline const std::vector<double>& normal_values(uint64_t seed, int64_t count) {
  constexpr size_t kMostSeeds = 64;
  thread_local std::map<uint64_t, std::vector<double>> of_seeds;
  if (of_seeds.size() > kMostSeeds) of_seeds.clear();
  std::vector<double>& values = of_seeds[seed];
  while (std::ssize(values) < count) values.push_back(normal_at(seed, values.size()));
  return values;
}

/// Normal values times `scale`, rounded to the dtype; the same for the same seed.
inline Tensor random_tensor(Memory& memory, Shape shape, DType dtype, uint64_t seed, double scale = 1) {
  Tensor x = Tensor::empty(memory, shape, DType::f64, Category::activations);
  double* values = x.data<double>();
  const std::vector<double>& normal = normal_values(seed, x.numel());
  for (int64_t i = 0; i < x.numel(); ++i) values[i] = scale * normal[static_cast<size_t>(i)];
  return converted(memory, x, dtype);
}

/// Dot products, the twin of AMX, and AMX where it is used. None without the instructions that all of them need.
inline std::vector<cpu::TileUnit> tile_units() {
  if (!has_bf16_units()) return {};
  std::vector<cpu::TileUnit> units{cpu::TileUnit::none, cpu::TileUnit::emulated};
  if (isa() == Isa::amx) units.push_back(cpu::TileUnit::amx);
  return units;
}

/// Normal values; the same for the same seed.
template <class T>
std::vector<T> random_values(int64_t count, uint64_t seed) {
  const std::vector<double>& normal = normal_values(seed, count);
  std::vector<T> values;
  for (int64_t i = 0; i < count; ++i) values.emplace_back(static_cast<float>(normal[static_cast<size_t>(i)]));
  return values;
}

/// Uniform integers in [0, limit).
inline Tensor random_ids(Memory& memory, Shape shape, int64_t limit, uint64_t seed) {
  Tensor ids = Tensor::empty(memory, shape, DType::i32, Category::activations);
  for (int64_t i = 0; i < ids.numel(); ++i) {
    ids.data<int32_t>()[i] = static_cast<int32_t>(philox(seed, static_cast<uint64_t>(i))[0] % limit);
  }
  return ids;
}

/// A tensor of its own with the same bytes.
inline Tensor cloned(Memory& memory, const Tensor& x) {
  Tensor y = Tensor::empty(memory, x.shape(), x.dtype(), Category::activations);
  copy(x, y);
  return y;
}

inline double max_abs_difference(const Tensor& a, const Tensor& b) {
  const auto va = a.to_vector<double>(), vb = b.to_vector<double>();
  EXPECT_EQ(va.size(), vb.size());
  double worst = 0;
  for (size_t i = 0; i < std::min(va.size(), vb.size()); ++i) {
    const double difference = std::abs(va[i] - vb[i]);
    worst = std::isnan(difference) ? std::numeric_limits<double>::infinity() : std::max(worst, difference);
  }
  return worst;
}

/// |actual - expected| <= atol + rtol * |expected| everywhere; the first offender is named.
inline void expect_close(const Tensor& actual, const Tensor& expected, double rtol, double atol) {
  ASSERT_EQ(actual.numel(), expected.numel());
  const auto a = actual.to_vector<double>(), e = expected.to_vector<double>();
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::abs(a[i] - e[i]) <= atol + rtol * std::abs(e[i])) continue;
    FAIL() << "element " << i << " of " << actual.str() << " is " << a[i] << ", expected " << e[i] << " (difference "
           << a[i] - e[i] << ", allowed " << atol + rtol * std::abs(e[i]) << ")";
  }
}

/// `actual` is the exact `expected` (f64) rounded once, after fp32 arithmetic whose error is at most `noise`. The
/// spacing of f16's subnormal numbers is allowed for.
inline void expect_rounded(const Tensor& actual, const Tensor& expected, double noise) {
  const double subnormal = actual.dtype() == DType::f16 ? 0x1p-25 : 0;
  expect_close(actual, expected, unit_roundoff(actual.dtype()) * 1.01, noise + subnormal);
}

inline void expect_same_bits(const Tensor& a, const Tensor& b) {
  ASSERT_EQ(a.bytes(), b.bytes());
  EXPECT_EQ(std::memcmp(a.raw(), b.raw(), static_cast<size_t>(a.bytes())), 0) << a.str() << " differs";
}

/// Sets the OpenMP threads of the calling thread for its own lifetime; nothing without OpenMP.
class ThreadCount {
 public:
  explicit ThreadCount([[maybe_unused]] int count) {
#if defined(_OPENMP)
    before_ = omp_get_max_threads();
    omp_set_num_threads(count);
#endif
  }
  ~ThreadCount() {
#if defined(_OPENMP)
    omp_set_num_threads(before_);
#endif
  }
  ThreadCount(const ThreadCount&) = delete;
  ThreadCount& operator=(const ThreadCount&) = delete;

 private:
  [[maybe_unused]] int before_ = 1;
};

/// Runs `body` once for each instruction set that the kernels are compiled for and this machine has; once where the
/// kernels under test are not those of the CPU.
inline void for_each_instruction_set(const std::function<void()>& body) {
  if (tested_backend() != "cpu") return body();
  // The sanitizers compile two sets only; a set that was not compiled would run as the plain one under its name.
  constexpr int64_t compiled = HWY_TARGETS | HWY_SCALAR | HWY_EMU128;
  for (const int64_t target : {HWY_SCALAR | HWY_EMU128, HWY_SSE4, HWY_AVX2, HWY_AVX3}) {
    if ((hwy::SupportedTargets() & target & compiled) == 0) continue;
    SCOPED_TRACE(hwy::TargetName(target & HWY_SCALAR ? HWY_SCALAR : target));
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    body();
    hwy::SetSupportedTargetsForTest(0);  // 0: whatever the machine has
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
}

/// The largest relative difference between `gradient` and central differences of `loss` along each element of x (f64),
/// relative to the largest element of the gradient.
inline double gradient_error(const Tensor& x, const Tensor& gradient, const std::function<double()>& loss,
                             double step = 1e-5) {
  double* values = x.data<double>();
  const double* exact = gradient.data<double>();
  double worst = 0, largest = 1e-30;
  for (int64_t i = 0; i < x.numel(); ++i) {
    const double value = values[i];
    values[i] = value + step;
    const double above = loss();
    values[i] = value - step;
    const double below = loss();
    values[i] = value;
    worst = std::max(worst, std::abs((above - below) / (2 * step) - exact[i]));
    largest = std::max(largest, std::abs(exact[i]));
  }
  return worst / largest;
}

/// sum of a[i] * b[i] in f64: turns an output into a scalar loss whose gradient is b.
inline double dot(const Tensor& a, const Tensor& b) {
  const auto va = a.to_vector<double>(), vb = b.to_vector<double>();
  double sum = 0;
  for (size_t i = 0; i < va.size(); ++i) sum += va[i] * vb[i];
  return sum;
}

/// Memory, and short names for the tensors that a test makes in it.
class KernelTest : public ::testing::Test {
 protected:
  std::shared_ptr<Memory> memory_ = Memory::create();

  Tensor random(Shape shape, DType dtype, uint64_t seed, double scale = 1) {
    return random_tensor(*memory_, shape, dtype, seed, scale);
  }
  Tensor empty(Shape shape, DType dtype) { return Tensor::empty(*memory_, shape, dtype, Category::activations); }
  template <class T>
  Tensor of(const std::vector<T>& values) {
    return Tensor::of<T>(*memory_, {static_cast<int64_t>(values.size())}, values);
  }
  /// The values in f64: the operand of an oracle.
  Tensor wide(const Tensor& x) { return converted(*memory_, x, DType::f64); }
  Tensor clone(const Tensor& x) { return cloned(*memory_, x); }
};

}  // namespace nought::test
