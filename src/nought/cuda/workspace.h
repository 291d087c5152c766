// The workspace that operations take on a GPU while they run, known without one. The backend takes what is listed here,
// one tensor of the category workspace behind the other, and the plan counts it.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "nought/kernels/ops.h"

namespace nought::cuda {

/// What addresses of memory of a GPU are multiples of.
inline constexpr size_t kDeviceAlignment = 256;

/// Bytes of workspace that the library of products asks for.
using ProductWorkspace = std::function<int64_t(const MatMul&)>;
/// The most that it may ask for, on GPUs from sm_90 on.
inline constexpr int64_t kMostWorkspaceOfProducts = int64_t{32} << 20;
inline int64_t limit_of_products(const MatMul& /*product*/) { return kMostWorkspaceOfProducts; }

/// The bytes of each tensor of workspace that the operation holds, all at once until it has been enqueued. Operands lie
/// on the device; their addresses count, as in products, from the begin of a block of its memory.
template <class Op>
std::vector<int64_t> workspace_of(const Op& /*op*/, const ProductWorkspace& /*products*/) {
  return {};
}
#define NOUGHT_WORKSPACE(Op) \
  template <>                \
  std::vector<int64_t> workspace_of(const Op& op, const ProductWorkspace& products);
NOUGHT_WORKSPACE(MatMul)
NOUGHT_WORKSPACE(SumSquares)
NOUGHT_WORKSPACE(SumRows)
NOUGHT_WORKSPACE(RmsNormBackward)
NOUGHT_WORKSPACE(LayerNormBackward)
NOUGHT_WORKSPACE(EmbeddingBackward)
NOUGHT_WORKSPACE(Route)
NOUGHT_WORKSPACE(RouteBackward)
NOUGHT_WORKSPACE(GroupByExpert)
NOUGHT_WORKSPACE(Attention)
NOUGHT_WORKSPACE(AttentionBackward)
NOUGHT_WORKSPACE(MergeAttention)
NOUGHT_WORKSPACE(OneBitEncode)
NOUGHT_WORKSPACE(Orthonormalize)
#undef NOUGHT_WORKSPACE

}  // namespace nought::cuda
