#include "nought/kernels/cpu/gemm.h"
#include "nought/kernels/cpu/gemm_blocks.h"
#include "nought/kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nought/kernels/cpu/gemm_float.cpp"
#include <hwy/foreach_target.h>

#include "nought/kernels/cpu/gemm_float-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nought::cpu::HWY_NAMESPACE {

struct ByFloats {
  using Element = float;
  struct Session {};
  template <class T>
  using Left = FloatLeft<T>;

  static constexpr int64_t kRows = kTileOfFloatRows, kColumns = kFloatColumns;
  // Stored rows of a transposed A are pages apart: long stretches of each.
  static constexpr int64_t kGroup = kRows == 8 ? 128 : 96;

  // The second cache of a CPU with AVX-512 has at least 1 MiB, that of others 256 KiB.
  static BlockShape shape(bool transpose_a) {
    constexpr bool kAvx512 = HWY_TARGET == HWY_AVX3;
    const int64_t chunk = longest_float_chunk(transpose_a, kAvx512);
    if (kAvx512) return {768, (transpose_a ? 16 : 8) * kColumns, chunk};
    return {768, transpose_a ? 160 : 128, chunk};
  }
  static int64_t packed_panel(int64_t k, int64_t width) { return float_panel(k, width); }
  template <class T>
  static void pack_right(const T* from, int64_t stride, bool transposed, int64_t k, int64_t columns, float* to) {
    transposed ? pack_float_columns(from, stride, k, columns, to) : pack_float_rows(from, stride, k, columns, to);
  }
};

void multiply_by_floats(const Product& product) {
  visit(product.inputs, [&](auto tag) {
    multiply_blocks<ByFloats, typename decltype(tag)::type>(product, [] { return ByFloats::Session(); });
  });
}

}  // namespace nought::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nought::cpu {
HWY_EXPORT(multiply_by_floats);

void multiply_floats(const Product& product) { HWY_DYNAMIC_DISPATCH(multiply_by_floats)(product); }

}  // namespace nought::cpu
#endif
