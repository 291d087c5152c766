// Matrix products by oneDNN, which picks AMX, AVX-512 or AVX2 itself. Its brgemm kernels take every layout that
// training uses (y = x W^T, dx = dy W, dW = dy^T x) at nearly the same speed, so transposes are only strides.
#include <unordered_map>

#include <dnnl.hpp>

#include "nought/kernels/check_products.h"
#include "nought/kernels/cpu/cpu.h"
#include "nought/kernels/cpu/scratch.h"
#include "nought/kernels/reference/reference.h"
#ifdef _OPENMP
#include <omp.h>
#endif

namespace nought::cpu {
namespace {

/// Everything that oneDNN compiles into a kernel.
struct Plan {
  MatMulSizes sizes;
  DType inputs = DType::f32, output = DType::f32;
  bool transpose_a = false, transpose_b = false, accumulate = false, bias = false;
  int threads = 1;

  friend bool operator==(const Plan& a, const Plan& b) {
    return a.sizes.m == b.sizes.m && a.sizes.n == b.sizes.n && a.sizes.k == b.sizes.k && a.inputs == b.inputs &&
           a.output == b.output && a.transpose_a == b.transpose_a && a.transpose_b == b.transpose_b &&
           a.accumulate == b.accumulate && a.bias == b.bias && a.threads == b.threads;
  }
};

struct PlanHash {
  size_t operator()(const Plan& plan) const {
    const auto mix = [](uint64_t hash, int64_t value) {
      return (hash ^ static_cast<uint64_t>(value)) * 0x9E3779B97F4A7C15ull;
    };
    uint64_t hash = mix(mix(mix(1, plan.sizes.m), plan.sizes.n), plan.sizes.k);
    hash = mix(hash, static_cast<int64_t>(plan.inputs) * 8 + static_cast<int64_t>(plan.output));
    hash = mix(hash, plan.transpose_a | plan.transpose_b << 1 | plan.accumulate << 2 | plan.bias << 3);
    return static_cast<size_t>(mix(hash, plan.threads) >> 16);
  }
};

int team_size() {
#ifdef _OPENMP
  return omp_get_max_threads();
#else
  return 1;
#endif
}

const dnnl::engine& engine() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

dnnl::memory::data_type to_dnnl(DType dtype) {
  return dtype == DType::bf16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

dnnl::memory::desc matrix(int64_t rows, int64_t columns, DType dtype, bool transposed) {
  return {{rows, columns}, to_dnnl(dtype), transposed ? dnnl::memory::dims{1, rows} : dnnl::memory::dims{columns, 1}};
}

struct Operands {
  void *a, *b, *bias, *c;
};

/// A compiled product. Its scratchpad is the calling thread's, so it holds no state between calls.
class Product {
 public:
  explicit Product(const Plan& plan) {
    const auto [m, n, k] = plan.sizes;
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (plan.accumulate) {
      dnnl::post_ops sum;
      sum.append_sum(1.0f);
      attributes.set_post_ops(sum);
    }
    const auto a = matrix(m, k, plan.inputs, plan.transpose_a), b = matrix(k, n, plan.inputs, plan.transpose_b);
    const auto c = matrix(m, n, plan.output, false);
    using Desc = dnnl::matmul::desc;
    const Desc desc = plan.bias ? Desc(a, b, matrix(1, n, plan.inputs, false), c) : Desc(a, b, c);
    const dnnl::matmul::primitive_desc compiled(desc, attributes, engine());
    primitive_ = dnnl::matmul(compiled);
    scratch_bytes_ = static_cast<int64_t>(compiled.scratchpad_desc().get_size());
    for (const auto& [argument, memory] : {std::pair{DNNL_ARG_SRC, a}, {DNNL_ARG_WEIGHTS, b}, {DNNL_ARG_DST, c}}) {
      arguments_.emplace(argument, dnnl::memory(memory, engine(), nullptr));
    }
    arguments_.emplace(DNNL_ARG_SCRATCHPAD, dnnl::memory(compiled.scratchpad_desc(), engine(), nullptr));
    if (plan.bias) {
      arguments_.emplace(DNNL_ARG_BIAS, dnnl::memory(matrix(1, n, plan.inputs, false), engine(), nullptr));
    }
  }

  void run(const Operands& operands) {
    const Scratch scratch(scratch_bytes_);
    arguments_[DNNL_ARG_SRC].set_data_handle(operands.a);
    arguments_[DNNL_ARG_WEIGHTS].set_data_handle(operands.b);
    arguments_[DNNL_ARG_DST].set_data_handle(operands.c);
    arguments_[DNNL_ARG_SCRATCHPAD].set_data_handle(scratch.data());
    if (operands.bias) arguments_[DNNL_ARG_BIAS].set_data_handle(operands.bias);
    dnnl::stream stream(engine());
    primitive_.execute(stream, arguments_);
    stream.wait();
  }

 private:
  dnnl::matmul primitive_;
  std::unordered_map<int, dnnl::memory> arguments_;
  int64_t scratch_bytes_ = 0;
};

/// The compiled product of a plan. Each thread keeps its own, so that ranks in one process share nothing.
Product& compile(const Plan& plan) {
  static constexpr size_t kCapacity = 1024;  // serving meets ever new numbers of rows: start over rather than grow
  static thread_local std::unordered_map<Plan, Product, PlanHash> products;
  const auto found = products.find(plan);
  if (found != products.end()) return found->second;
  if (products.size() >= kCapacity) products.clear();
  return products.emplace(plan, Product(plan)).first->second;
}

void multiply(const Plan& plan, const Operands& operands) {
  try {
    compile(plan).run(operands);
  } catch (const dnnl::error& error) {
    fail<DeviceError>("oneDNN refused the product [{}, {}] x [{}, {}] of {}: {}", plan.sizes.m, plan.sizes.k,
                      plan.sizes.k, plan.sizes.n, name_of(plan.inputs), error.what());
  }
}

/// Whether oneDNN multiplies this dtype on this machine; others are widened to f32 first.
bool multiplies(DType dtype) {
  constexpr auto kNeeded = static_cast<unsigned>(dnnl::cpu_isa::avx512_core);
  static const bool has_bf16 = (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & kNeeded) == kNeeded;
  return dtype == DType::f32 || (dtype == DType::bf16 && has_bf16);
}

void widen(const Tensor& from, float* to) {
  visit_float(from.dtype(), [&](auto tag) {
    const auto* source = from.data<typename decltype(tag)::type>();
    const int64_t n = from.numel();
#pragma omp parallel for
    for (int64_t i = 0; i < n; ++i) to[i] = static_cast<float>(source[i]);
  });
}

void narrow(const float* from, const Tensor& to) {
  visit_float(to.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* target = to.data<T>();
    const int64_t n = to.numel();
#pragma omp parallel for
    for (int64_t i = 0; i < n; ++i) target[i] = static_cast<T>(from[i]);
  });
}

/// Runs a product of a dtype that oneDNN cannot multiply here through copies in f32; c is rounded once.
void multiply_widened(const MatMul& op, Plan plan) {
  const auto [m, n, k] = plan.sizes;
  const bool narrow_c = plan.output != DType::f32;
  const Scratch scratch((m * k + k * n + n + (narrow_c ? m * n : 0)) * size_of(DType::f32));
  float* a = scratch.data<float>();
  float* b = a + m * k;
  float* bias = b + k * n;
  float* c = narrow_c ? bias + n : op.c.data<float>();
  widen(op.a, a);
  widen(op.b, b);
  if (op.bias) widen(op.bias, bias);
  if (narrow_c && op.accumulate) widen(op.c, c);
  plan.inputs = plan.output = DType::f32;
  multiply(plan, {a, b, op.bias ? bias : nullptr, c});
  if (narrow_c) narrow(c, op.c);
}

}  // namespace

void run(const MatMul& op) {
  const MatMulSizes sizes = check(op);
  if (sizes.m == 0 || sizes.n == 0) return;
  if (op.a.dtype() == DType::f64 || sizes.k == 0) return reference::run(op);
  const Plan plan{.sizes = sizes,
                  .inputs = op.a.dtype(),
                  .output = op.c.dtype(),
                  .transpose_a = op.transpose_a,
                  .transpose_b = op.transpose_b,
                  .accumulate = op.accumulate,
                  .bias = op.bias.defined(),
                  .threads = team_size()};
  if (!multiplies(plan.inputs)) return multiply_widened(op, plan);
  multiply(plan, {op.a.raw(), op.b.raw(), op.bias.raw(), op.c.raw()});
}

}  // namespace nought::cpu
