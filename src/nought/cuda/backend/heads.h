// The kernels of heads within wider rows, as host code calls them. Meanings are those of kernels/ops/heads.h.
#pragma once

#include "nought/cuda/backend/attention.h"

namespace nought::cuda {

struct HeadRows {
  int64_t tokens = 0, num_heads = 0, head_dim = 0;
};
/// With a head_stride of 0 in `from` there is one head for all.
void copy_heads(const Launch& where, const HeadArray& from, const HeadArray& to, const HeadRows& size, bool accumulate);
void sum_heads(const Launch& where, const HeadArray& from, const HeadArray& to, const HeadRows& size);

struct RopeArrays {
  HeadArray x;
  Array cos, sin, positions;
  int64_t rotary_dim = 0;
  bool interleaved = false, inverse = false;
  int64_t positions_known = 0;  // rows of cos and sin; NaN for others
};
void rope(const Launch& where, const RopeArrays& a, const HeadRows& size);

}  // namespace nought::cuda
