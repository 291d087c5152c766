#include "nought/kernels/watch.h"

#include <utility>

namespace nought {

namespace {

class WatchingKernels final : public Kernels {
 public:
  WatchingKernels(std::shared_ptr<Kernels> inner, Watcher watcher)
      : inner_(std::move(inner)), watcher_(std::move(watcher)) {}
  std::string_view name() const override { return inner_->name(); }
#define NOUGHT_RUN(Op)                              \
  void run(const Op& op, Stream& stream) override { \
    inner_->run(op, stream);                        \
    operation_ = #Op;                               \
    results(op);                                    \
  }
  NOUGHT_OPERATIONS(NOUGHT_RUN)
#undef NOUGHT_RUN

 private:
  void see(std::string_view result, const Tensor& values) {
    if (values.defined() && is_float(values.dtype())) watcher_(operation_, result, values);
  }
  void see(std::string_view result, const Heads& heads, int64_t tokens, int64_t num_heads, int64_t head_dim) {
    for (int64_t token = 0; token < tokens; ++token) {
      const int64_t begin = heads.at(token, 0, head_dim);
      see(result, heads.base.flat(begin, begin + heads.width(num_heads, head_dim)));
    }
  }

  /// Operations that are not listed below: those of optimizers, and those that only count or fill.
  template <class Op>
  void results(const Op&) {}
  void results(const MatMul& op) { see("c", op.c); }
  void results(const SumRows& op) { see("out", op.out); }
  void results(const Add& op) { see("out", op.out); }
  void results(const Scale& op) { see("x", op.x); }
  void results(const Cast& op) { see("y", op.y); }
  void results(const AddTo& op) { see("into", op.into); }
  void results(const SumTensors& op) { see("out", op.out); }
  void results(const Activate& op) { see("y", op.y); }
  void results(const ActivateBackward& op) { see("dx", op.dx); }
  void results(const GatedActivate& op) { see("y", op.y); }
  void results(const GatedActivateBackward& op) { see("d_gate_up", op.d_gate_up); }
  void results(const Softcap& op) { see("x", op.x); }
  void results(const SoftcapBackward& op) { see("d", op.d); }
  void results(const RmsNorm& op) { see("y", op.y), see("rstd", op.rstd); }
  void results(const RmsNormBackward& op) { see("dx", op.dx), see("d_weight", op.d_weight); }
  void results(const LayerNorm& op) { see("y", op.y), see("rstd", op.rstd); }
  void results(const LayerNormBackward& op) {
    see("dx", op.dx), see("d_weight", op.d_weight), see("d_bias", op.d_bias);
  }
  void results(const Embedding& op) { see("out", op.out); }
  void results(const EmbeddingBackward& op) { see("d_table", op.d_table); }
  void results(const CopyHeads& op) { see("to", op.to, op.tokens, op.num_heads, op.head_dim); }
  void results(const SumHeads& op) { see("to", op.to, op.tokens, 1, op.head_dim); }
  void results(const Rope& op) { see("x", op.x, op.positions.numel(), op.num_heads, op.head_dim); }
  void results(const Attention& op) { see("out", op.out); }
  void results(const AttentionBackward& op) {
    const AttentionShape& s = op.shape;
    see("dq", op.dq, s.q_tokens(), s.num_heads, s.head_dim);
    see("dk", op.dk, s.k_tokens(), s.num_kv_heads, s.head_dim);
    see("dv", op.dv, s.k_tokens(), s.num_kv_heads, s.value_dim());
    see("d_sinks", op.d_sinks);
  }
  void results(const Route& op) { see("weights", op.weights); }
  void results(const RouteBackward& op) { see("d_logits", op.d_logits); }
  void results(const GatherRows& op) { see("out", op.out); }
  void results(const CombineRows& op) { see("out", op.out); }
  void results(const ScaleRows& op) { see("y", op.y); }
  void results(const DotRows& op) { see("out", op.out); }
  void results(const ClampedSwiglu& op) { see("y", op.y); }
  void results(const ClampedSwigluBackward& op) { see("d_gate_up", op.d_gate_up); }
  void results(const CrossEntropy& op) {
    see("loss", op.loss);
    if (op.gradient) see("gradient of the logits", op.logits);
  }

  std::shared_ptr<Kernels> inner_;
  Watcher watcher_;
  std::string_view operation_;
};

}  // namespace

std::unique_ptr<Kernels> make_watching_kernels(std::shared_ptr<Kernels> inner, Watcher watcher) {
  return std::make_unique<WatchingKernels>(std::move(inner), std::move(watcher));
}

}  // namespace nought
