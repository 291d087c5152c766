#include "nought/kernels/ops/delta_rule.h"

#include "nought/kernels/check.h"
#include "nought/kernels/cpu/cpu.h"
#include "nought/kernels/cpu/parallel.h"
#include "nought/kernels/cpu/targets.h"
#include "nought/kernels/reference/reference.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nought/kernels/cpu/delta_rule.cpp"
#include <hwy/foreach_target.h>

#include "nought/kernels/cpu/delta_rule-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nought::cpu::HWY_NAMESPACE {

/// The value heads of one key head, over all spans.
template <class T>
HWY_NOINLINE void forward_of(const DeltaRule& op, int64_t key_head) {
  const DeltaShape& s = op.shape;
  const int64_t heads = s.heads_of_key(), vp = round_up(s.value_dim, kPadding), state_size = s.key_dim * vp;
  const Scratch scratch(bytes_for<float>(DeltaChunk<T, DeltaRule>::elements(s) + heads * state_size + 2 * kChunk * vp));
  Arena arena(scratch.data<float>());
  DeltaChunk<T, DeltaRule> chunk(op, key_head, arena);
  float* const states = arena.matrix(heads * s.key_dim, vp);
  float *const out = arena.matrix(kChunk, vp), *const room = arena.matrix(kChunk, vp);
  const auto kept = [&](const StateSpan& span, int64_t head, int64_t row) {
    return op.states.data<float>() + ((span.state * s.value_heads + head) * s.key_dim + row) * s.value_dim;
  };
  for (const StateSpan& span : op.spans) {
    std::fill(states, states + heads * state_size, 0.0f);
    for (int64_t i = 0; i < heads * s.key_dim && span.continues; ++i)
      std::copy_n(kept(span, key_head * heads, i), s.value_dim, states + i * vp);
    for (int64_t begin = 0; begin < span.length; begin += kChunk) {
      chunk.load_keys(span.begin + begin, std::min(kChunk, span.length - begin));
      for (int64_t h = 0; h < heads; ++h) {
        float* const state = states + h * state_size;
        chunk.load_head(key_head * heads + h);
        chunk.solve_from(state);
        multiply(chunk.n, vp, s.key_dim, plain(chunk.q, chunk.kp), state, vp, out, vp);
        for (int64_t i = 0; i < chunk.n; ++i) scale_row(vp, out + i * vp, chunk.from_begin[i], out + i * vp);
        multiply(chunk.n, vp, chunk.n, plain(chunk.within, kChunk), chunk.u, vp, out, vp, /*adds=*/true, Part::lower);
        for (int64_t i = 0; i < chunk.n; ++i) {
          T* const to = op.out.data<T>() + (chunk.first + i) * s.values() + chunk.head * s.value_dim;
          const float* const row = out + i * vp;
          const F32 d;
          sweep(d, 0, s.value_dim,
                [=](int64_t j, auto access) HWY_ATTR { access.store(d, access.load(d, row + j), to + j); });
        }
        chunk.advance(state, room);
      }
    }
    for (int64_t i = 0; i < heads * s.key_dim && op.states; ++i)
      std::copy_n(states + i * vp, s.value_dim, kept(span, key_head * heads, i));
  }
}

void delta_rule(const DeltaRule& op, int64_t key_head) {
  visit(op.qkv.dtype(), [&](auto tag) { forward_of<typename decltype(tag)::type>(op, key_head); });
}

}  // namespace nought::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nought::cpu {

HWY_EXPORT(delta_rule);

void run(const DeltaRule& op) {
  if (op.qkv.dtype() == DType::f64) return reference::run(op);
  check(op);
  parallel_for(op.shape.key_heads, static_cast<int64_t>(op.flops()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t head = begin; head < end; ++head) HWY_DYNAMIC_DISPATCH(delta_rule)(op, head);
  });
}

}  // namespace nought::cpu
#endif
