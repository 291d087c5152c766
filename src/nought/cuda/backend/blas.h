// Products of matrices by cuBLASLt: the functions of the library that are called, and Blas, which plans each kind of
// product once.
//
// Design goals: the bits of a product depend on its sizes, dtypes and options alone. The library chooses algorithms by
// alignment and by the workspace that it may use, too: every product names one alignment and one limit, and operands
// that lie elsewhere are copied first (matmul_start.cpp). Sums run in fp32 (f64 for f64), and no partial sum is rounded
// to the output's dtype. fp32 stays fp32: no TF32.
// Non-goals: products in fp8; many products of one shape at once.
#pragma once

#include <compare>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>

#include "nought/cuda/backend/runtime.h"
#include "nought/cuda/library.h"
#include "nought/cuda/limits.h"
#include "nought/kernels/ops/matmul.h"

namespace nought::cuda {

/// Numbers and structs of cuBLASLt, which builds without its header know too. blas_library.cpp holds them against the
/// header where there is one.
namespace blas {
enum Status { kSuccess = 0, kInvalidValue = 7, kNotSupported = 15 };
enum Type { kF32 = 0, kF64 = 1, kF16 = 2, kBf16 = 14 };
enum Compute { kCompute32 = 68, kCompute64 = 70 };
enum Transpose { kPlain = 0, kTransposed = 1 };
enum DescAttribute { kTransposeA = 3, kTransposeB = 4, kEpilogue = 7, kBiasPointer = 8 };
enum Epilogue { kNoEpilogue = 1, kAddBias = 4 };
enum PreferenceAttribute {
  kMaxWorkspace = 1,
  kReductions = 3,
  kAlignmentA = 5,
  kAlignmentB = 6,
  kAlignmentC = 7,
  kAlignmentD = 8
};
/// How the partial sums of several blocks become one: there is one block; in the output, or beside it in fp32, or in
/// the output's dtype.
enum Reduction { kNone = 0, kInPlace = 1, kComputeType = 2, kOutputType = 4 };

struct Algorithm {
  uint64_t data[8];
};
struct Heuristic {
  Algorithm algorithm;
  size_t workspace;
  int state;
  float waves;
  int reserved[4];
};
using Handle = void*;
using Desc = void*;
using Layout = void*;
using Preference = void*;
}  // namespace blas

/// The functions of the library.
struct BlasFunctions {
  int (*create)(blas::Handle* handle);
  int (*destroy)(blas::Handle handle);
  int (*desc_create)(blas::Desc* desc, int compute, int scale);
  int (*desc_set)(blas::Desc desc, int attribute, const void* value, size_t bytes);
  int (*desc_destroy)(blas::Desc desc);
  int (*layout_create)(blas::Layout* layout, int type, uint64_t rows, uint64_t columns, int64_t leading);
  int (*layout_destroy)(blas::Layout layout);
  int (*preference_create)(blas::Preference* preference);
  int (*preference_set)(blas::Preference preference, int attribute, const void* value, size_t bytes);
  int (*preference_destroy)(blas::Preference preference);
  int (*heuristic)(blas::Handle handle, blas::Desc desc, blas::Layout a, blas::Layout b, blas::Layout c, blas::Layout d,
                   blas::Preference preference, int asked, blas::Heuristic* results, int* found);
  int (*multiply)(blas::Handle handle, blas::Desc desc, const void* alpha, const void* a, blas::Layout a_layout,
                  const void* b, blas::Layout b_layout, const void* beta, const void* c, blas::Layout c_layout, void* d,
                  blas::Layout d_layout, const blas::Algorithm* algorithm, void* workspace, size_t workspace_bytes,
                  cudaStream_t stream);
};

/// The functions of the library that is found. IoError if there is none, or if it lacks one.
BlasFunctions load_blas(const LibrarySearch& search);
/// The functions of the environment's library, loaded once; the tests have their own.
const BlasFunctions& blas_functions();

/// What an algorithm is chosen by. c = op(a) op(b) [+ bias] [+ c], as MatMul has it.
struct BlasProduct {
  int64_t m = 0, n = 0, k = 0;
  DType inputs = DType::f32, output = DType::f32;
  bool transpose_a = false, transpose_b = false;
  bool bias = false;   // one of the output's dtype; not for f64
  bool whole = false;  // one block forms a sum: behind several, a bias and what is added to meet a rounded one
  auto operator<=>(const BlasProduct&) const = default;
};

class Blas {
 public:
  Blas();
  ~Blas();
  Blas(const Blas&) = delete;
  Blas& operator=(const Blas&) = delete;

  /// What the addresses of operands are multiples of.
  static constexpr size_t kAlignment = kAlignmentOfProducts;

  /// Bytes of workspace that the product's algorithm needs. DeviceError if the library has no algorithm for it.
  size_t workspace_of(const BlasProduct& product);
  /// Enqueues it. `bias` is null unless the product has one; `workspace` is aligned to 256 bytes.
  void multiply(const BlasProduct& product, const void* a, const void* b, const void* bias, void* c, bool accumulate,
                void* workspace, cudaStream_t stream);

 private:
  struct Plan;
  const Plan& plan_of(const BlasProduct& product);
  std::unique_ptr<Plan> make_plan(const BlasProduct& product);

  std::mutex mutex_;  // descriptors hold the address of the bias
  const BlasFunctions* functions_ = nullptr;
  blas::Handle handle_ = nullptr;
  size_t workspace_limit_ = 0;
  std::map<BlasProduct, std::unique_ptr<Plan>> plans_;
};

}  // namespace nought::cuda
