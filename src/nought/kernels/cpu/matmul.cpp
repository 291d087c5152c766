// Matrix products: those of bf16 by our own kernels where the machine has AMX or AVX512-BF16, all others by oneDNN,
// with AVX-512 or AVX2. Its brgemm kernels take every layout that training uses (y = x W^T, dx = dy
// W, dW = dy^T x) at nearly the same speed, so transposes are only strides.
#include <algorithm>
#include <exception>
#include <unordered_map>
#include <utility>

#include <dnnl.hpp>

#include "nought/kernels/check.h"
#include "nought/kernels/cpu/codes.h"
#include "nought/kernels/cpu/cpu.h"
#include "nought/kernels/cpu/gemm_bf16.h"
#include "nought/kernels/cpu/parallel.h"
#include "nought/kernels/cpu/scratch.h"
#include "nought/kernels/isa.h"
#include "nought/kernels/reference/reference.h"

namespace nought::cpu {
namespace {

/// Everything that oneDNN compiles into a kernel.
struct Plan {
  MatMulSizes sizes;
  int64_t lda = 0, ldb = 0, ldc = 0;  // elements from one stored row to the next
  DType inputs = DType::f32, output = DType::f32;
  bool transpose_a = false, transpose_b = false, accumulate = false, bias = false;
  int threads = 1;

  friend bool operator==(const Plan& a, const Plan& b) = default;
};

struct PlanHash {
  size_t operator()(const Plan& plan) const {
    const auto mix = [](uint64_t hash, int64_t value) {
      return (hash ^ static_cast<uint64_t>(value)) * 0x9E3779B97F4A7C15ull;
    };
    uint64_t hash = mix(mix(mix(1, plan.sizes.m), plan.sizes.n), plan.sizes.k);
    hash = mix(hash, static_cast<int64_t>(plan.inputs) * 8 + static_cast<int64_t>(plan.output));
    hash = mix(mix(mix(hash, plan.lda), plan.ldb), plan.ldc);
    hash = mix(hash, plan.transpose_a | plan.transpose_b << 1 | plan.accumulate << 2 | plan.bias << 3);
    return static_cast<size_t>(mix(hash, plan.threads) >> 16);
  }
};

const dnnl::engine& engine() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

dnnl::memory::data_type to_dnnl(DType dtype) {
  return dtype == DType::bf16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

/// [rows, columns], stored with `leading` elements from row to row, or, transposed, from column to column.
dnnl::memory::desc matrix(int64_t rows, int64_t columns, DType dtype, int64_t leading, bool transposed = false) {
  const dnnl::memory::dims strides = transposed ? dnnl::memory::dims{1, leading} : dnnl::memory::dims{leading, 1};
  return {{rows, columns}, to_dnnl(dtype), strides};
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
    const auto a = matrix(m, k, plan.inputs, plan.lda, plan.transpose_a);
    const auto b = matrix(k, n, plan.inputs, plan.ldb, plan.transpose_b);
    const auto bias = matrix(1, n, plan.inputs, n);
    const auto c = matrix(m, n, plan.output, plan.ldc);
    using Desc = dnnl::matmul::desc;
    const Desc desc = plan.bias ? Desc(a, b, bias, c) : Desc(a, b, c);
    const dnnl::matmul::primitive_desc compiled(desc, attributes, engine());
    primitive_ = dnnl::matmul(compiled);
    scratch_bytes_ = static_cast<int64_t>(compiled.scratchpad_desc().get_size());
    for (const auto& [argument, memory] : {std::pair{DNNL_ARG_SRC, a}, {DNNL_ARG_WEIGHTS, b}, {DNNL_ARG_DST, c}}) {
      arguments_.emplace(argument, dnnl::memory(memory, engine(), nullptr));
    }
    arguments_.emplace(DNNL_ARG_SCRATCHPAD, dnnl::memory(compiled.scratchpad_desc(), engine(), nullptr));
    if (plan.bias) arguments_.emplace(DNNL_ARG_BIAS, dnnl::memory(bias, engine(), nullptr));
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

void run_product(const Plan& plan, const Operands& operands) {
  try {
    compile(plan).run(operands);
  } catch (const dnnl::error& error) {
    fail<DeviceError>("oneDNN refused the product [{}, {}] x [{}, {}] of {}: {}", plan.sizes.m, plan.sizes.k,
                      plan.sizes.k, plan.sizes.n, name_of(plan.inputs), error.what());
  }
}

// --- the same bits for any number of threads ---
//
// oneDNN 2.6 may let threads share a sum over k. Its AVX-512 kernels do so for a transposed a and k >= 2048
// (brgemm_matmul_utils.cpp), so such a product is run as shorter ones, one after the other. Older instruction sets go
// to kernels that do so by many rules, and so do products with a vector, so c is cut into slices of a fixed width, each
// one thread's. With AMX it may share any bf16 sum of k > 1024: isa.cpp keeps AMX from it.

constexpr int64_t kSharedSum = 2048;
constexpr int64_t kChunk = 1024;
constexpr int64_t kSliceWidth = 128;

bool has_avx512() { return isa() >= Isa::avx512; }

bool needs_chunks(const Plan& plan) { return has_avx512() && plan.transpose_a && plan.sizes.k >= kSharedSum; }

void* advance(void* data, int64_t elements, DType dtype) {
  return static_cast<std::byte*>(data) + elements * size_of(dtype);
}

/// c must be f32, so that the partial sums are not rounded.
void run_chunks(const Plan& whole, const Operands& operands) {
  Plan plan = whole;
  Operands part = operands;
  for (int64_t begin = 0; begin < whole.sizes.k; begin += kChunk) {
    plan.sizes.k = std::min(kChunk, whole.sizes.k - begin);
    part.a = advance(operands.a, begin * whole.lda, whole.inputs);
    part.b = advance(operands.b, begin * whole.ldb, whole.inputs);
    run_product(plan, part);
    plan.accumulate = true;
    plan.bias = false;
    part.bias = nullptr;
  }
}

void run_slice(const Plan& whole, const Operands& operands, int64_t begin, bool by_rows) {
  Plan plan = whole;
  Operands part = operands;
  plan.threads = 1;
  (by_rows ? plan.sizes.m : plan.sizes.n) = std::min(kSliceWidth, (by_rows ? plan.sizes.m : plan.sizes.n) - begin);
  part.c = advance(operands.c, begin * (by_rows ? whole.ldc : 1), whole.output);
  if (by_rows) {
    part.a = advance(operands.a, begin * (whole.transpose_a ? 1 : whole.lda), whole.inputs);
  } else {
    part.b = advance(operands.b, begin * (whole.transpose_b ? whole.ldb : 1), whole.inputs);
    if (whole.bias) part.bias = advance(operands.bias, begin, whole.inputs);
  }
  run_product(plan, part);
}

/// Calls task(i) for i in [0, count), each by one thread.
template <class Task>
void run_tasks(int64_t count, const Task& task) {
  std::exception_ptr error;
#pragma omp parallel for schedule(static, 1)
  for (int64_t i = 0; i < count; ++i) {
    try {
#ifdef _OPENMP
      omp_set_num_threads(1);  // for this task only: oneDNN plans for as many
#endif
      task(i);
    } catch (...) {
#pragma omp critical(nought_matmul_error)
      error = std::current_exception();
    }
  }
  if (error) std::rethrow_exception(error);
}

void run_slices(const Plan& plan, const Operands& operands) {
  const bool by_rows = plan.sizes.m >= plan.sizes.n;
  const int64_t extent = by_rows ? plan.sizes.m : plan.sizes.n;
  run_tasks(ceil_div(extent, kSliceWidth), [&](int64_t i) { run_slice(plan, operands, i * kSliceWidth, by_rows); });
}

/// A product with a vector: oneDNN may share its sums among threads whatever the instruction set.
bool is_vector(const MatMulSizes& sizes) { return sizes.m == 1 || sizes.n == 1; }

void multiply(const Plan& plan, const Operands& operands) {
  if (!has_avx512() || is_vector(plan.sizes)) return run_slices(plan, operands);
  if (!needs_chunks(plan)) return run_product(plan, operands);
  // A chunk of a transposed b has gaps, which the AVX-512 kernels do not take; training never transposes both.
  plan.transpose_b ? run_slices(plan, operands) : run_chunks(plan, operands);
}

bool is_for_own_kernels(const Plan& plan) {
  return plan.inputs == DType::bf16 && (plan.output == DType::bf16 || plan.output == DType::f32) &&
         is_for_bf16_gemm(plan.sizes) && has_bf16_units();
}

void multiply_by_own_kernels(const Plan& plan, const Operands& operands) {
  multiply(Bf16Product{.sizes = plan.sizes,
                       .a = static_cast<const bf16_t*>(operands.a),
                       .b = static_cast<const bf16_t*>(operands.b),
                       .bias = plan.bias ? static_cast<const bf16_t*>(operands.bias) : nullptr,
                       .c = operands.c,
                       .lda = plan.lda,
                       .ldb = plan.ldb,
                       .ldc = plan.ldc,
                       .output = plan.output,
                       .transpose_a = plan.transpose_a,
                       .transpose_b = plan.transpose_b,
                       .accumulate = plan.accumulate},
           tile_unit());
}

// --- dtypes that oneDNN cannot take as they are ---

/// Whether oneDNN multiplies this dtype with instructions for it; others are widened to f32 first, which is several
/// times as fast as its emulation of bf16.
bool multiplies(DType dtype) { return dtype == DType::f32 || (dtype == DType::bf16 && has_bf16_units()); }

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

/// Runs a product through f32 copies: of the inputs if oneDNN does not multiply them, and of c, which is rounded once.
void multiply_widened(const MatMul& op, Plan plan) {
  const auto [m, n, k] = plan.sizes;
  const bool widen_inputs = !multiplies(plan.inputs), widen_c = plan.output != DType::f32;
  const Scratch scratch(((widen_inputs ? m * k + k * n + n : 0) + (widen_c ? m * n : 0)) * size_of(DType::f32));
  float* free = scratch.data<float>();
  const auto widened = [&](const Tensor& x, bool read) {
    float* copy = std::exchange(free, free + x.numel());
    if (read) widen(x, copy);
    return copy;
  };
  Operands operands{op.a.raw(), op.b.values.raw(), op.bias.raw(), op.c.raw()};
  if (widen_inputs) {
    operands = {widened(op.a, true), widened(op.b.values, true), op.bias ? widened(op.bias, true) : nullptr,
                operands.c};
    plan.inputs = DType::f32;
  }
  if (widen_c) {
    operands.c = widened(op.c, op.accumulate);
    plan.output = DType::f32;
  }
  multiply(plan, operands);
  if (widen_c) narrow(static_cast<const float*>(operands.c), op.c);
}

// --- weights of codes ---
//
// c is cut into blocks of a size that its shape decides, each one thread's: it decodes the factors of the block's
// columns, for the whole of k, and multiplies by them as by dense ones. The sums lie by themselves: when oneDNN
// wrote them into rows of c with gaps in between, their bits depended on the number of threads.

constexpr int64_t kCodedRows = 512, kCodedColumns = 192;

/// `extent` cut into the fewest parts of at most `most`: the length of all but the last, nearly equal.
int64_t even_part(int64_t extent, int64_t most) {
  return round_up(ceil_div(extent, ceil_div(extent, most)), kCodeBlock);
}

/// Copies a block of c to sums, or sums to the block, which is rounded then. sums: [rows, columns].
void copy_block(const Tensor& c, int64_t ldc, Interval rows, Interval columns, float* sums, bool to_sums) {
  visit_float(c.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    for (int64_t row = rows.begin; row < rows.end; ++row, sums += columns.size()) {
      T* at = c.data<T>() + row * ldc + columns.begin;
      for (int64_t j = 0; j < columns.size(); ++j) {
        if (to_sums) {
          sums[j] = static_cast<float>(at[j]);
        } else {
          at[j] = static_cast<T>(sums[j]);
        }
      }
    }
  });
}

/// One block of c. The plan and the operands are those of the whole product, but a and bias may be wider than in `op`.
void multiply_coded_block(const MatMul& op, Plan plan, Operands operands, Interval rows, Interval columns) {
  const int64_t k = plan.sizes.k, width = columns.size(), stored_rows = op.transpose_b ? width : k;
  const int64_t length = op.transpose_b ? k : width;
  const Scratch tile(k * width * size_of(plan.inputs)), sums(bytes_for<float>(rows.size() * width));
  for (int64_t row = 0; row < stored_rows; ++row) {
    const int64_t at = op.transpose_b ? (columns.begin + row) * k : row * plan.sizes.n + columns.begin;
    decode(op.b, at, length, plan.inputs, advance(tile.data(), row * length, plan.inputs));
  }
  operands.a = advance(operands.a, rows.begin * (plan.transpose_a ? 1 : plan.lda), plan.inputs);
  operands.b = tile.data();
  if (plan.bias) operands.bias = advance(operands.bias, columns.begin, plan.inputs);
  operands.c = sums.data();
  if (op.accumulate) copy_block(op.c, plan.ldc, rows, columns, sums.data<float>(), /*to_sums=*/true);
  Plan part = plan;
  part.sizes.m = rows.size(), part.sizes.n = width;
  part.ldb = length, part.ldc = width, part.threads = 1, part.output = DType::f32;
  is_for_own_kernels(part) ? multiply_by_own_kernels(part, operands) : multiply(part, operands);
  copy_block(op.c, plan.ldc, rows, columns, sums.data<float>(), /*to_sums=*/false);
}

void multiply_codes(const MatMul& op, Plan plan) {
  const auto [m, n, k] = plan.sizes;
  const bool widen_inputs = !multiplies(plan.inputs);
  const Scratch wide(bytes_for<float>(widen_inputs ? m * k + (plan.bias ? n : 0) : 0));
  Operands operands{op.a.raw(), nullptr, op.bias.raw(), op.c.raw()};
  if (widen_inputs) {
    widen(op.a, wide.data<float>());
    operands.a = wide.data<float>();
    if (plan.bias) widen(op.bias, wide.data<float>() + m * k);
    if (plan.bias) operands.bias = wide.data<float>() + m * k;
    plan.inputs = DType::f32;
  }
  const int64_t height = even_part(m, kCodedRows), width = even_part(n, kCodedColumns), across = ceil_div(n, width);
  const Interval whole_rows{0, m}, whole_columns{0, n};
  run_tasks(ceil_div(m, height) * across, [&](int64_t i) {
    const int64_t row = i / across * height, column = i % across * width;
    multiply_coded_block(op, plan, operands, intersect(whole_rows, {row, row + height}),
                         intersect(whole_columns, {column, column + width}));
  });
}

}  // namespace

std::string_view bf16_products() {
  switch (isa()) {
    case Isa::amx:
      return "own AMX kernels";
    case Isa::amx_emulated:
      return "own AMX kernels, on emulated tiles";
    case Isa::avx512_bf16:
      return "own AVX512-BF16 kernels";
    default:
      return "oneDNN, in fp32";
  }
}

void run(const MatMul& op) {
  check(op);
  const MatMulSizes sizes = op.sizes();
  if (sizes.m == 0 || sizes.n == 0) return;
  if (op.a.dtype() == DType::f64 || sizes.k == 0) return reference::run(op);
  const Plan plan{.sizes = sizes,
                  .lda = op.transpose_a ? sizes.m : sizes.k,
                  .ldb = op.transpose_b ? sizes.k : sizes.n,
                  .ldc = sizes.n,
                  .inputs = op.a.dtype(),
                  .output = op.c.dtype(),
                  .transpose_a = op.transpose_a,
                  .transpose_b = op.transpose_b,
                  .accumulate = op.accumulate,
                  .bias = op.bias.defined(),
                  .threads = team_size()};
  if (op.b.is_coded()) return is_for_few(op) ? multiply_few(op) : multiply_codes(op, plan);
  const Operands operands{op.a.raw(), op.b.values.raw(), op.bias.raw(), op.c.raw()};
  if (is_for_own_kernels(plan)) return multiply_by_own_kernels(plan, operands);
  const bool rounds_between_chunks = needs_chunks(plan) && plan.output != DType::f32;
  if (!multiplies(plan.inputs) || rounds_between_chunks) return multiply_widened(op, plan);
  multiply(plan, operands);
}

}  // namespace nought::cpu
