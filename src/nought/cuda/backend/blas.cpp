#include "nought/cuda/backend/blas.h"

#include <string>

namespace nought::cuda {

namespace {

int type_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return blas::kF64;
    case DType::bf16:
      return blas::kBf16;
    case DType::f16:
      return blas::kF16;
    default:
      return blas::kF32;
  }
}

std::string text_of(const BlasProduct& product) {
  return fmt::format("the product of {}{} x {}{} x {} in {} to {}", product.m, product.transpose_a ? "'" : "",
                     product.n, product.transpose_b ? "'" : "", product.k, name_of(product.inputs),
                     name_of(product.output));
}

void check_blas(int status, const BlasProduct& product) {
  require<DeviceError>(status == blas::kSuccess, "cuBLASLt: {}: status {}{}", text_of(product), status,
                       status == blas::kNotSupported ? " (not supported)" : "");
}

}  // namespace

/// Descriptors and the algorithm of one kind of product. Row-major c = a b is column-major c' = b' a': the library's A
/// is our b, its B our a, and its matrices have our columns as rows.
struct Blas::Plan {
  explicit Plan(const BlasFunctions& of) : functions(of) {}
  ~Plan() {
    for (const blas::Layout layout : {a, b, c})
      if (layout != nullptr) functions.layout_destroy(layout);
    if (preference != nullptr) functions.preference_destroy(preference);
    if (desc != nullptr) functions.desc_destroy(desc);
  }
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  const BlasFunctions& functions;
  blas::Desc desc = nullptr;
  blas::Layout a = nullptr, b = nullptr, c = nullptr;
  blas::Preference preference = nullptr;
  blas::Heuristic chosen{};
};

Blas::Blas() = default;

Blas::~Blas() {
  plans_.clear();
  if (handle_ != nullptr) functions_->destroy(handle_);
}

std::unique_ptr<Blas::Plan> Blas::make_plan(const BlasProduct& product) {
  auto plan = std::make_unique<Plan>(*functions_);
  const auto must = [&](int status) { check_blas(status, product); };
  const auto layout = [&](blas::Layout& made, DType dtype, int64_t rows, int64_t columns) {
    must(functions_->layout_create(&made, type_of(dtype), static_cast<uint64_t>(rows), static_cast<uint64_t>(columns),
                                   rows));
  };
  const auto [m, n, k, inputs, output, transpose_a, transpose_b, bias, whole] = product;
  const bool wide = inputs == DType::f64;
  must(
      functions_->desc_create(&plan->desc, wide ? blas::kCompute64 : blas::kCompute32, wide ? blas::kF64 : blas::kF32));
  const auto set = [&](int attribute, int32_t value) {
    must(functions_->desc_set(plan->desc, attribute, &value, sizeof(value)));
  };
  set(blas::kTransposeA, transpose_b ? blas::kTransposed : blas::kPlain);
  set(blas::kTransposeB, transpose_a ? blas::kTransposed : blas::kPlain);
  set(blas::kEpilogue, bias ? blas::kAddBias : blas::kNoEpilogue);
  transpose_b ? layout(plan->a, inputs, k, n) : layout(plan->a, inputs, n, k);
  transpose_a ? layout(plan->b, inputs, m, k) : layout(plan->b, inputs, k, m);
  layout(plan->c, output, n, m);

  must(functions_->preference_create(&plan->preference));
  const uint64_t limit = workspace_limit_;
  must(functions_->preference_set(plan->preference, blas::kMaxWorkspace, &limit, sizeof(limit)));
  const uint32_t reductions = whole ? blas::kNone : blas::kComputeType, alignment = kAlignment;
  must(functions_->preference_set(plan->preference, blas::kReductions, &reductions, sizeof(reductions)));
  for (const int each : {blas::kAlignmentA, blas::kAlignmentB, blas::kAlignmentC, blas::kAlignmentD})
    must(functions_->preference_set(plan->preference, each, &alignment, sizeof(alignment)));

  int found = 0;
  must(functions_->heuristic(handle_, plan->desc, plan->a, plan->b, plan->c, plan->c, plan->preference, 1,
                             &plan->chosen, &found));
  must(found == 0 ? blas::kNotSupported : plan->chosen.state);
  return plan;
}

const Blas::Plan& Blas::plan_of(const BlasProduct& product) {
  if (handle_ == nullptr) {
    constexpr size_t kLarge = size_t{32} << 20, kSmall = size_t{4} << 20;  // as the library recommends
    int device = 0, major = 0;
    check(cudaGetDevice(&device), "the device of products");
    check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "the device of products");
    workspace_limit_ = major >= 9 ? kLarge : kSmall;
    functions_ = &blas_functions();
    check_blas(functions_->create(&handle_), product);
  }
  std::unique_ptr<Plan>& plan = plans_[product];
  if (!plan) plan = make_plan(product);
  return *plan;
}

size_t Blas::workspace_of(const BlasProduct& product) {
  const std::lock_guard lock(mutex_);
  return plan_of(product).chosen.workspace;
}

void Blas::multiply(const BlasProduct& product, const void* a, const void* b, const void* bias, void* c,
                    bool accumulate, void* workspace, cudaStream_t stream) {
  const std::lock_guard lock(mutex_);
  const Plan& plan = plan_of(product);
  if (product.bias) check_blas(functions_->desc_set(plan.desc, blas::kBiasPointer, &bias, sizeof(bias)), product);
  const bool wide = product.inputs == DType::f64;
  const double one = 1, kept = accumulate ? 1 : 0;
  const float narrow_one = 1, narrow_kept = accumulate ? 1 : 0;
  const void* const alpha = wide ? static_cast<const void*>(&one) : &narrow_one;
  const void* const beta = wide ? static_cast<const void*>(&kept) : &narrow_kept;
  check_blas(functions_->multiply(handle_, plan.desc, alpha, b, plan.a, a, plan.b, beta, c, plan.c, c, plan.c,
                                  &plan.chosen.algorithm, workspace, plan.chosen.workspace, stream),
             product);
}

}  // namespace nought::cuda
