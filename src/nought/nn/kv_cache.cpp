#include "nought/nn/kv_cache.h"

#include <array>
#include <string_view>

namespace nought {

void KvCache::append(const Context& context, const PackedHeads& heads, const Tensor& qkv,
                     const AttentionSpan& span) const {
  const int64_t first = span.k_begin + span.k_length - span.q_length;
  const auto write = [&](Heads from, const Tensor& to, const Tensor& scales, int64_t head_dim) {
    from.offset += span.q_begin * from.token_stride;
    Heads rows{to, 0, heads.num_kv_heads * head_dim};
    if (scales.defined()) {
      context.run(EncodeHeads{.from = from,
                              .to = rows,
                              .scales = scales,
                              .first = first,
                              .tokens = span.q_length,
                              .num_heads = heads.num_kv_heads,
                              .head_dim = head_dim});
      return;
    }
    rows.offset = first * rows.token_stride;
    context.run(CopyHeads{
        .from = from, .to = rows, .tokens = span.q_length, .num_heads = heads.num_kv_heads, .head_dim = head_dim});
  };
  write(heads.k(qkv), k, k_scales, heads.head_dim);
  write(heads.v(qkv), v, v_scales, heads.value_dim());
}

void KvCache::copy(const Context& context, int64_t from, int64_t to, int64_t count) const {
  for (const Tensor& each : {k, v})
    if (each.defined()) context.copy(each.slice(from, from + count), each.slice(to, to + count));
  for (const Tensor& each : {k_scales, v_scales}) {
    const int64_t heads = each.defined() ? each.dim(0) : 0;
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t head = h * each.dim(1);
      context.copy(each.flat(head + from, head + from + count), each.flat(head + to, head + to + count));
    }
  }
}

KvCache make_kv_cache(const Context& context, const PackedHeads& heads, int64_t tokens, DType kept, DType computed) {
  require<ConfigError>(kept == computed || context.memory->device().is_host(),
                       "--kv-dtype: on a GPU the cache is kept in {}, in which the model computes: leave it away, or "
                       "generate with --device cpu",
                       name_of(computed));
  const auto rows = [&](int64_t head_dim) {
    return context.empty({tokens, heads.num_kv_heads * head_dim}, kept, Category::kv_cache);
  };
  KvCache cache{rows(heads.head_dim), rows(heads.value_dim())};
  if (is_float(kept)) return cache;
  for (Tensor* scales : {&cache.k_scales, &cache.v_scales})
    *scales = context.empty({heads.num_kv_heads, tokens}, DType::f32, Category::kv_cache);
  return cache;
}

int64_t kv_cache_bytes(const PackedHeads& heads, DType kept) {
  const int64_t scales = is_float(kept) ? 0 : 2 * size_of(DType::f32);
  return heads.num_kv_heads * ((heads.head_dim + heads.value_dim()) * size_of(kept) + scales);
}

namespace {
struct KvDtype {
  std::string_view name;
  DType dtype;
};
constexpr std::array kKvDtypes{KvDtype{"bf16", DType::bf16}, KvDtype{"f16", DType::f16}, KvDtype{"f32", DType::f32},
                               KvDtype{"fp8", DType::u8}, KvDtype{"int8", DType::i8}};
}  // namespace

DType kv_dtype_named(const std::string& name) {
  for (const KvDtype& each : kKvDtypes)
    if (name == each.name) return each.dtype;
  fail<ConfigError>("--kv-dtype {}: expected bf16, f16, f32, fp8 or int8", name);
}

std::string kv_dtype_name(DType kept) {
  for (const KvDtype& each : kKvDtypes)
    if (kept == each.dtype) return std::string(each.name);
  return std::string(name_of(kept));
}

}  // namespace nought
