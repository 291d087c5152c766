#include "cuda/timings.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <vector>

#ifndef NOUGHT_CUDA_EMULATED
#include "cuda/cub_sort.h"
#endif
#include "nought/base/error.h"
#include "nought/cuda/backend/sort.h"
#include "nought/cuda/backend/stream.h"
#include "nought/tensor/random.h"

namespace nought::test {

namespace {

constexpr int64_t kWidth = 64;  // of a head, and what hidden sizes are multiples of

class Timings {
 public:
  Timings(const Context& context, int64_t tokens) : context_(context), tokens_(tokens), hidden_(tokens) {}

  std::string table() {
    text_ = fmt::format("{:<34}{:>12}{:>14}{:>10}\n", "operation", "us", "rate", "ceiling");
    ceilings();
    products();
    attention();
    if (tokens_ >= 1024) attention_of_models();  // an emulated GPU would take minutes
    elementwise();
    sorting();
    return text_;
  }

 private:
  /// The least of several runs, each of which is waited for.
  double seconds_of(const std::function<void()>& work) {
    double best = INFINITY;
    for (int run = 0; run < 5; ++run) {
      const auto begin = std::chrono::steady_clock::now();
      for (int repeat = 0; repeat < kRepeats; ++repeat) work();
      context_.stream->synchronize();
      const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
      if (run > 0) best = std::min(best, taken.count() / kRepeats);  // the first one plans and allocates
    }
    return best;
  }

  void line(const std::string& name, double seconds, double amount, double unit, const char* of, double ceiling) {
    const std::string share = ceiling > 0 ? fmt::format("{:.0f}%", 100 * amount / seconds / ceiling) : "";
    text_ += fmt::format("{:<34}{:>12.1f}{:>14}{:>10}\n", name, seconds * 1e6,
                         fmt::format("{:.2f} {}", amount / seconds / unit, of), share);
  }
  /// `bytes` are read and written in all.
  void moves(const std::string& name, double bytes, const std::function<void()>& work, double* ceiling = nullptr) {
    const double seconds = seconds_of(work);
    if (ceiling != nullptr) *ceiling = bytes / seconds;
    line(name, seconds, bytes, 1e9, "GB/s", ceiling != nullptr ? 0 : bytes_per_second_);
  }
  void computes(const std::string& name, double flops, const std::function<void()>& work, double* ceiling = nullptr) {
    const double seconds = seconds_of(work);
    if (ceiling != nullptr) *ceiling = flops / seconds;
    line(name, seconds, flops, 1e12, "TFLOP/s", ceiling != nullptr ? 0 : flops_per_second_);
  }

  /// Tensors hold small numbers: of products of zeros, a GPU takes less power and runs faster.
  Tensor filled(Shape shape, DType dtype) const {
    const Tensor x = context_.empty(shape, dtype);
    context_.run(Fill{.x = x, .value = 0.01});
    return x;
  }

  void ceilings() {
    const Shape shape{tokens_, 4 * hidden_};
    const Tensor from = filled(shape, DType::f32), to = filled(shape, DType::f32);
    const auto bytes = static_cast<double>(from.bytes());
    moves(
        "copy on the device", 2 * bytes, [&] { context_.copy(from, to); }, &bytes_per_second_);
    const Tensor host = Tensor::empty(*context_.memory, shape, DType::f32, Category::activations, Pool::host);
    double link = 0;
    moves(
        "copy to the device, pinned", bytes, [&] { context_.copy(host, to); }, &link);
    moves(
        "copy from the device, pinned", bytes, [&] { context_.copy(from, host); }, &link);
    const int64_t n = 2 * tokens_;
    const Tensor a = filled({n, n}, DType::bf16), b = filled({n, n}, DType::bf16), c = filled({n, n}, DType::bf16);
    const MatMul product{.a = a, .b = b, .c = c, .transpose_b = true};
    computes(
        "product, bf16, the largest", product.flops(), [&] { context_.run(product); }, &flops_per_second_);
  }

  void products() {
    for (const DType dtype : {DType::bf16, DType::f16, DType::f32}) {
      const Tensor x = filled({tokens_, hidden_}, dtype), w = filled({hidden_, hidden_}, dtype);
      const Tensor y = filled({tokens_, hidden_}, dtype), dw = filled({hidden_, hidden_}, DType::f32);
      const MatMul forward{.a = x, .b = w, .c = y, .transpose_b = true};
      computes(fmt::format("product, {}", name_of(dtype)), forward.flops(), [&] { context_.run(forward); });
      const MatMul gradient{.a = y, .b = x, .c = dw, .transpose_a = true, .accumulate = true};
      computes(fmt::format("product, {}, added to f32", name_of(dtype)), gradient.flops(),
               [&] { context_.run(gradient); });
    }
  }

  void attention() {
    const int64_t heads = std::max<int64_t>(hidden_ / kWidth / 4, 1);
    for (const DType dtype : {DType::bf16, DType::f32})
      attention_of(fmt::format("attention, {}", name_of(dtype)),
                   {.batch = 1, .q_length = tokens_, .num_heads = heads, .num_kv_heads = heads, .head_dim = kWidth},
                   dtype);
  }

  /// The shapes of `bench/peer/attention.py`, which times PyTorch's: GPT-2's with 1024 tokens, a Llama's with 2048.
  void attention_of_models() {
    const int64_t sequences = tokens_ / 128, length = tokens_ / 4;
    attention_of(
        "attention, causal, 12 x 64",
        {.batch = sequences, .q_length = length, .num_heads = 12, .num_kv_heads = 12, .head_dim = 64, .causal = true},
        DType::bf16);
    attention_of("attention, causal, 16 and 8 x 128",
                 {.batch = sequences / 4,
                  .q_length = 2 * length,
                  .num_heads = 16,
                  .num_kv_heads = 8,
                  .head_dim = 128,
                  .causal = true},
                 DType::bf16);
  }

  /// Forward and backward. Keys are as many as queries.
  void attention_of(const std::string& name, AttentionShape shape, DType dtype) {
    shape.k_length = shape.q_length;
    shape.scale = 1 / std::sqrt(static_cast<double>(shape.head_dim));
    const int64_t tokens = shape.batch * shape.q_length;
    const int64_t row = shape.num_heads * shape.head_dim, key_row = shape.num_kv_heads * shape.head_dim;
    const Tensor q = filled({tokens, row}, dtype), out = filled({tokens, row}, dtype);
    const Tensor dout = filled({tokens, row}, dtype), dq = filled({tokens, row}, dtype);
    const auto of_keys = [&] { return filled({tokens, key_row}, dtype); };
    const Tensor k = of_keys(), v = of_keys(), dk = of_keys(), dv = of_keys();
    const Tensor lse = filled({shape.batch, shape.num_heads, shape.q_length}, DType::f32);
    const auto queries = [&](const Tensor& base) { return Heads{.base = base, .token_stride = row}; };
    const auto keys = [&](const Tensor& base) { return Heads{.base = base, .token_stride = key_row}; };
    const Attention forward{.shape = shape, .q = queries(q), .k = keys(k), .v = keys(v), .out = out, .lse = lse};
    computes(name, forward.flops(), [&] { context_.run(forward); });
    const AttentionBackward backward{.shape = shape,
                                     .q = queries(q),
                                     .k = keys(k),
                                     .v = keys(v),
                                     .out = out,
                                     .lse = lse,
                                     .d_out = dout,
                                     .dq = queries(dq),
                                     .dk = keys(dk),
                                     .dv = keys(dv)};
    computes(name + ", backward", backward.flops(), [&] { context_.run(backward); });
  }

  void elementwise() {
    const Shape shape{tokens_, 4 * hidden_};
    const Tensor x = filled(shape, DType::bf16), y = filled(shape, DType::bf16), sum = filled(shape, DType::f32);
    const Tensor gamma = filled({4 * hidden_}, DType::bf16), rstd = filled({tokens_}, DType::f32);
    const auto bytes = static_cast<double>(x.bytes());
    moves("Add, bf16", 3 * bytes, [&] { context_.run(Add{.a = x, .b = y, .out = y}); });
    moves("AddTo, bf16 to f32", 5 * bytes, [&] { context_.run(AddTo{.x = x, .into = sum}); });
    moves("RmsNorm, bf16", 2 * bytes,
          [&] { context_.run(RmsNorm{.x = x, .weight = gamma, .y = y, .rstd = rstd, .eps = 1e-5}); });
  }

  /// The keys of the gradient of an embedding: ours, and CUB's radix sort beside it, which test_cuda_device has alone.
  void sorting() {
    const int64_t count = cuda::room_of_keys(8 * tokens_);
    std::vector<int64_t> keys(static_cast<size_t>(count));
    for (uint64_t i = 0; i < keys.size(); ++i)
      keys[i] = static_cast<int64_t>(uint64_t{philox(1, i)[0] % 50304} << 32 | i);
    const Tensor from = context_.upload<int64_t>({count}, keys), to = context_.empty({count}, DType::i64);
    const auto& stream = dynamic_cast<const cuda::CudaStream&>(*context_.stream);
    const auto of = [](const Tensor& tensor) { return reinterpret_cast<uint64_t*>(tensor.in_flight().raw()); };
    const auto bytes = static_cast<double>(2 * from.bytes());
    moves(fmt::format("sort of {} keys, and a copy", count), bytes, [&] {
      context_.copy(from, to);
      cuda::sort_keys({.stream = stream.handle()}, of(to), count);
    });
#ifndef NOUGHT_CUDA_EMULATED
    const Tensor room = context_.empty({static_cast<int64_t>(cub_sort_room(count))}, DType::u8);
    moves("the same by CUB's radix sort", bytes,
          [&] { cub_sort(stream.handle(), room.in_flight().raw(), room.bytes(), of(from), of(to), count); });
#endif
  }

  static constexpr int kRepeats = 3;
  const Context& context_;
  const int64_t tokens_, hidden_;
  double bytes_per_second_ = 0, flops_per_second_ = 0;
  std::string text_;
};

}  // namespace

std::string timings_of(const Context& context, int64_t tokens) { return Timings(context, tokens).table(); }

}  // namespace nought::test
