// The library of the machine, and its header, which the numbers of blas.h are held against. The emulated GPU of the
// tests has functions of its own in place of this file.
#include <cstddef>

#include "nought/cuda/backend/blas.h"

#if __has_include(<cublasLt.h>)
#include <cublasLt.h>

namespace nought::cuda::blas {

constexpr bool same(int ours, int theirs) { return ours == theirs; }

static_assert(same(kSuccess, CUBLAS_STATUS_SUCCESS) && same(kInvalidValue, CUBLAS_STATUS_INVALID_VALUE) &&
              same(kNotSupported, CUBLAS_STATUS_NOT_SUPPORTED));
static_assert(same(kF32, CUDA_R_32F) && same(kF64, CUDA_R_64F) && same(kF16, CUDA_R_16F) && same(kBf16, CUDA_R_16BF));
static_assert(same(kCompute32, CUBLAS_COMPUTE_32F) && same(kCompute64, CUBLAS_COMPUTE_64F));
static_assert(same(kPlain, CUBLAS_OP_N) && same(kTransposed, CUBLAS_OP_T));
static_assert(same(kTransposeA, CUBLASLT_MATMUL_DESC_TRANSA) && same(kTransposeB, CUBLASLT_MATMUL_DESC_TRANSB) &&
              same(kEpilogue, CUBLASLT_MATMUL_DESC_EPILOGUE) && same(kBiasPointer, CUBLASLT_MATMUL_DESC_BIAS_POINTER));
static_assert(same(kNoEpilogue, CUBLASLT_EPILOGUE_DEFAULT) && same(kAddBias, CUBLASLT_EPILOGUE_BIAS));
static_assert(same(kMaxWorkspace, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) &&
              same(kReductions, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK) &&
              same(kAlignmentA, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES) &&
              same(kAlignmentB, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES) &&
              same(kAlignmentC, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES) &&
              same(kAlignmentD, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES));
static_assert(same(kInPlace, CUBLASLT_REDUCTION_SCHEME_INPLACE) &&
              same(kComputeType, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE) &&
              same(kOutputType, CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE));
static_assert(sizeof(Algorithm) == sizeof(cublasLtMatmulAlgo_t) &&
              sizeof(Heuristic) == sizeof(cublasLtMatmulHeuristicResult_t) &&
              offsetof(Heuristic, workspace) == offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize) &&
              offsetof(Heuristic, state) == offsetof(cublasLtMatmulHeuristicResult_t, state));

}  // namespace nought::cuda::blas
#endif

namespace nought::cuda {

const BlasFunctions& blas_functions() {
  static const BlasFunctions functions = load_blas(LibrarySearch::of_environment());
  return functions;
}

}  // namespace nought::cuda
