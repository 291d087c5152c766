#include "nought/bench/bench.h"
#include "nought/kernels/cpu/scratch.h"
#include "nought/nn/kv_cache.h"

namespace nought {

namespace {

/// Tokens that are generated: queries at the end of a cache of keys and values, against a triad.
void add_decoding(const Context& context, const Limits& limits, DType dtype, int samples,
                  std::vector<Figure>& figures) {
  constexpr int64_t kHeads = 16, kKeys = 8192, kDim = 64;
  const auto rows = [&](int64_t tokens, int64_t heads) {
    Tensor tensor = context.empty({tokens, heads * kDim}, dtype);
    context.run(Fill{.x = tensor, .value = 0.1});
    return Heads{.base = tensor, .token_stride = heads * kDim};
  };
  const Heads k = rows(kKeys, kHeads), v = rows(kKeys, kHeads);
  for (const int64_t queries : {1, 4})
    for (const int64_t group : {1, 4}) {
      const Heads q = rows(queries, group * kHeads), out = rows(queries, group * kHeads);
      const AttentionShape shape{.batch = 1,
                                 .q_length = queries,
                                 .k_length = kKeys,
                                 .num_heads = group * kHeads,
                                 .num_kv_heads = kHeads,
                                 .head_dim = kDim,
                                 .scale = 0.125};
      const Attention decode{.shape = shape,
                             .q = q,
                             .k = k,
                             .v = v,
                             .out = out.base,
                             .lse = context.empty({1, group * kHeads, queries}, DType::f32)};
      Figure figure{.name = fmt::format("decode {} x {} queries, {} keys", queries, group, kKeys),
                    .work = static_cast<double>(k.base.bytes() + v.base.bytes()),
                    .unit = "B",
                    .limit_name = "triad"};
      measure(
          figure, samples, 0.05, [&] { return limits.memory(); }, [&] { context.run(decode); });
      figures.push_back(std::move(figure));
    }
}

/// Tokens that attend to a cache in 8 bits, beside one in the dtype: the limit is the rate of tokens that attend to
/// that one.
void add_codes(const Context& context, DType dtype, int samples, std::vector<Figure>& figures) {
  constexpr int64_t kKeys = 8192;
  for (const int64_t dim : {64, 128})
    for (const int64_t group : {1, 4}) {
      const PackedHeads heads{.num_heads = 1024 / dim * group, .num_kv_heads = 1024 / dim, .head_dim = dim};
      const Tensor qkv = context.empty({1, heads.width()}, dtype);
      const Tensor out = context.empty({1, heads.out_width()}, dtype);
      const Tensor lse = context.empty({heads.num_heads}, DType::f32);
      context.run(Fill{.x = qkv, .value = 0.1});
      const auto attention_to = [&](const KvCache& cache) {
        for (int64_t token = 0; token < kKeys; ++token) cache.append(context, heads, qkv, {0, 1, 0, token + 1});
        return Attention{.shape = {.batch = 1,
                                   .q_length = 1,
                                   .k_length = kKeys,
                                   .num_heads = heads.num_heads,
                                   .num_kv_heads = heads.num_kv_heads,
                                   .head_dim = dim,
                                   .scale = 0.125},
                         .q = heads.q(qkv),
                         .k = {cache.k, 0, heads.num_kv_heads * dim},
                         .v = {cache.v, 0, heads.num_kv_heads * dim},
                         .out = out,
                         .lse = lse,
                         .k_scales = cache.k_scales,
                         .v_scales = cache.v_scales};
      };
      const Attention dense = attention_to(make_kv_cache(context, heads, kKeys, dtype, dtype));
      for (const auto& [name, codes] : {std::pair{"int8", DType::i8}, std::pair{"fp8", DType::u8}}) {
        const Attention decode = attention_to(make_kv_cache(context, heads, kKeys, codes, dtype));
        Figure figure{.name = fmt::format("decode {} queries of {}, {} keys in {}", group, dim, kKeys, name),
                      .work = 1,
                      .unit = "tokens",
                      .limit_name = fmt::format("{} keys", name_of(dtype)),
                      .limited_work = 1,
                      .limited_unit = "tokens"};
        const auto of_dense = [&] {
          constexpr int kTimes = 16;
          return kTimes / seconds_of([&] {
                   for (int i = 0; i < kTimes; ++i) context.run(dense);
                 });
        };
        measure(figure, samples, 0.05, of_dense, [&] { context.run(decode); });
        figures.push_back(std::move(figure));
      }
    }
}

}  // namespace

std::vector<Figure> bench_attention(const Context& context, const Limits& limits, DType dtype, int samples) {
  constexpr int64_t kHeads = 4;
  std::vector<Figure> figures;
  for (const int64_t dim : {64, 128}) {
    for (const int64_t length : {1024, 2048, 4096, 8192}) {
      const auto rows = [&] {
        Tensor tensor = context.empty({length, kHeads * dim}, dtype);
        context.run(Fill{.x = tensor, .value = 0.1});
        return tensor;
      };
      const auto heads = [&](const Tensor& tensor) { return Heads{.base = tensor, .token_stride = kHeads * dim}; };
      const Tensor q = rows(), k = rows(), v = rows(), out = rows(), d_out = rows(), dq = rows(), dk = rows(),
                   dv = rows();
      const Tensor lse = context.empty({1, kHeads, length}, DType::f32);
      const AttentionShape shape{.batch = 1,
                                 .q_length = length,
                                 .k_length = length,
                                 .num_heads = kHeads,
                                 .num_kv_heads = kHeads,
                                 .head_dim = dim,
                                 .scale = 0.125};
      const Attention forward{.shape = shape, .q = heads(q), .k = heads(k), .v = heads(v), .out = out, .lse = lse};
      const AttentionBackward backward{.shape = shape,
                                       .q = heads(q),
                                       .k = heads(k),
                                       .v = heads(v),
                                       .out = out,
                                       .lse = lse,
                                       .d_out = d_out,
                                       .dq = heads(dq),
                                       .dk = heads(dk),
                                       .dv = heads(dv)};
      // Two products forward and five backward of which half is masked; the fifth recomputes the scores.
      const double product = static_cast<double>(kHeads * dim) * static_cast<double>(length * length);
      const auto add = [&](const char* what, double flops, auto&& run) {
        MemoryLedger& ledger = context.memory->ledger();
        const int64_t before = ledger.current_total() - lse.bytes();
        ledger.reset_peaks();
        cpu::ScratchUse::reset_peak();
        run();
        const int64_t extra = ledger.peak_total() - before + cpu::ScratchUse::peak();
        Figure figure{.name = fmt::format("{} T {} head {}", what, length, dim),
                      .work = flops,
                      .unit = "FLOP",
                      .limit_name = kMatrixPeak,
                      .facts = {{"extra memory", static_cast<double>(extra), "B"}}};
        measure(
            figure, samples, 0.05, [&] { return limits.matrix(dtype); }, run);
        figures.push_back(std::move(figure));
      };
      add("forward", 2 * product, [&] { context.run(forward); });
      add("forward + backward", 6 * product, [&] { context.run(forward), context.run(backward); });
    }
  }
  add_decoding(context, limits, dtype, samples, figures);
  add_codes(context, dtype, samples, figures);
  return figures;
}

}  // namespace nought
