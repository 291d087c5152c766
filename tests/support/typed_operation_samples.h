// One small, valid instance of every operation, with every tensor that it may have. A new operation without a sample
// does not compile here. Tests use support/operation_samples.h, which compiles what goes over all operations once.
#pragma once

#include "support/operation_samples.h"

#include "nought/kernels/check.h"
#include "nought/kernels/grouping.h"

namespace nought::test {

template <class Op>
class TypedOperation final : public AnyOperation {
 public:
  explicit TypedOperation(Op op) : op_(std::move(op)) {}

  std::unique_ptr<AnyOperation> clone() const override { return std::make_unique<TypedOperation>(op_); }
  std::string_view name() const override { return operation_name(op_); }
  void for_each_operand(const std::function<void(const Operand&)>& f) const override {
    nought::for_each_operand(op_, f);
  }
  void run(Kernels& kernels, Stream& stream) const override { kernels.run(op_, stream); }
  void run(Backend& backend) const override { backend.run(op_); }
  void check() const override { nought::check(op_); }
  Work work() const override { return work_of(op_); }
  std::unique_ptr<AnyOperation> adding() const override {
    Op op = op_;
    if constexpr (requires { op.accumulate; }) op.accumulate = true;
    if constexpr (requires { op.accumulate_x; }) op.accumulate_x = true;
    if constexpr (requires { op.accumulate_weight; }) op.accumulate_weight = true;
    if constexpr (requires { op.accumulate_sinks; }) op.accumulate_sinks = true;
    return std::make_unique<TypedOperation>(std::move(op));
  }

 private:
  Op op_;
};

template <class Op>
struct Of {};

/// Makes f32 operands of random values, each with values of its own.
class OperationSamples {
 public:
  explicit OperationSamples(Memory& memory) : memory_(memory) {}

  static DeltaShape delta() { return {.key_heads = 1, .value_heads = 2, .key_dim = 2, .value_dim = 4}; }

  MatMul make(Of<MatMul>) {
    return {.a = values({3, 5}), .b = values({5, 4}), .c = values({3, 4}), .bias = values({4})};
  }
  SumRows make(Of<SumRows>) { return {.x = values({5, 4}), .out = values({4})}; }
  SumTensors make(Of<SumTensors>) { return {.inputs = {values({6}), values({6})}, .out = values({6})}; }
  SumSquares make(Of<SumSquares>) { return {.x = values({6}), .out = values({1}, DType::f64)}; }
  SumElements make(Of<SumElements>) { return {.x = values({6}), .out = values({1}, DType::f64)}; }
  AbsMax make(Of<AbsMax>) {
    const AbsMax op{.x = values({6}), .out = values({1})};
    *op.out.data<float>() = 9;  // more than any of x: it counts if the operation accumulates
    return op;
  }

  Add make(Of<Add>) { return {.a = values({6}), .b = values({6}), .out = values({6})}; }
  Scale make(Of<Scale>) { return {.x = values({6}), .squares = squares(1), .factor = 3}; }
  Fill make(Of<Fill>) { return {.x = values({6}), .value = 3}; }
  Cast make(Of<Cast>) { return {.x = values({6}), .y = values({6}, DType::bf16)}; }
  AddTo make(Of<AddTo>) { return {.x = values({6}, DType::bf16), .into = values({6})}; }

  Activate make(Of<Activate>) { return {.x = values({6}), .y = values({6})}; }
  ActivateBackward make(Of<ActivateBackward>) { return {.x = values({6}), .dy = values({6}), .dx = values({6})}; }
  GatedActivate make(Of<GatedActivate>) { return {.gate_up = values({3, 8}), .y = values({3, 4})}; }
  GatedActivateBackward make(Of<GatedActivateBackward>) {
    return {.gate_up = values({3, 8}), .dy = values({3, 4}), .d_gate_up = values({3, 8})};
  }
  ClampedSwiglu make(Of<ClampedSwiglu>) { return {.gate_up = values({3, 8}), .y = values({3, 4})}; }
  ClampedSwigluBackward make(Of<ClampedSwigluBackward>) {
    return {.gate_up = values({3, 8}), .dy = values({3, 4}), .d_gate_up = values({3, 8})};
  }
  Softcap make(Of<Softcap>) { return {.x = values({6}), .cap = 2}; }
  SoftcapBackward make(Of<SoftcapBackward>) { return {.y = values({6}), .d = values({6}), .cap = 8}; }
  Clamp make(Of<Clamp>) { return {.x = values({6}), .y = values({6}), .limit = 1}; }
  ClampBackward make(Of<ClampBackward>) { return {.x = values({6}), .dy = values({6}), .dx = values({6}), .limit = 1}; }

  Dropout make(Of<Dropout>) {
    return {.x = values({3, 4}), .rows = rows(3), .y = values({3, 4}), .key = 5, .probability = 0.5};
  }

  RmsNorm make(Of<RmsNorm>) {
    return {.x = values({3, 4}),
            .weight = values({4}),
            .y = values({3, 4}),
            .rstd = values({3}),
            .squares = values({3}),
            .width = 8};
  }
  RmsNormBackward make(Of<RmsNormBackward>) {
    return {.x = values({3, 4}),
            .weight = values({4}),
            .rstd = values({3}),
            .dy = values({3, 4}),
            .dx = values({3, 4}),
            .d_weight = values({4}),
            .products = values({3}),
            .width = 8};
  }
  LayerNorm make(Of<LayerNorm>) {
    return {.x = values({3, 4}),
            .weight = values({4}),
            .bias = values({4}),
            .y = values({3, 4}),
            .mean = values({3}),
            .rstd = values({3})};
  }
  LayerNormBackward make(Of<LayerNormBackward>) {
    return {.x = values({3, 4}),
            .weight = values({4}),
            .mean = values({3}),
            .rstd = values({3}),
            .dy = values({3, 4}),
            .dx = values({3, 4}),
            .d_weight = values({4}),
            .d_bias = values({4})};
  }

  Embedding make(Of<Embedding>) { return {.table = values({7, 4}), .ids = ids({5}, 7), .out = values({5, 4})}; }
  EmbeddingBackward make(Of<EmbeddingBackward>) {
    return {.d_out = values({5, 4}), .ids = ids({5}, 7), .d_table = values({7, 4})};
  }

  CopyHeads make(Of<CopyHeads>) { return {.from = heads(), .to = heads(), .tokens = 3, .num_heads = 2, .head_dim = 4}; }
  EncodeHeads make(Of<EncodeHeads>) {
    return {.from = heads(),
            .to = {.base = Tensor::zeros(memory_, {4, 8}, DType::u8, Category::activations), .token_stride = 8},
            .scales = values({2, 4}),
            .first = 1,
            .tokens = 3,
            .num_heads = 2,
            .head_dim = 4};
  }
  SumHeads make(Of<SumHeads>) { return {.from = heads(), .to = heads(), .tokens = 3, .num_heads = 2, .head_dim = 4}; }
  Rope make(Of<Rope>) {
    return {.x = heads(),
            .cos = values({5, 1}),
            .sin = values({5, 1}),
            .positions = ids({3}, 5),
            .num_heads = 2,
            .head_dim = 4,
            .rotary_dim = 2};
  }
  Attention make(Of<Attention>) {
    return {.shape = attention(),
            .q = heads(),
            .k = heads(),
            .v = heads(),
            .out = values({3, 8}),
            .lse = values({1, 2, 3}),
            .sinks = values({2})};
  }
  Gate make(Of<Gate>) { return {.x = values({6}), .gate = values({6}), .y = values({6})}; }
  GateBackward make(Of<GateBackward>) {
    return {.x = values({6}), .gate = values({6}), .dy = values({6}), .dx = values({6}), .d_gate = values({6})};
  }
  DeltaRule make(Of<DeltaRule>) {
    return {.shape = delta(),
            .qkv = values({5, 12}),
            .ba = values({5, 4}),
            .a_log = values({2}),
            .dt_bias = values({2}),
            .out = values({5, 8}),
            .spans = {{0, 3, 1}, {3, 2, 0, true}},
            .states = values({2, 2, 2, 4})};
  }
  DeltaRuleBackward make(Of<DeltaRuleBackward>) {
    return {.shape = delta(),
            .qkv = values({5, 12}),
            .ba = values({5, 4}),
            .a_log = values({2}),
            .dt_bias = values({2}),
            .d_out = values({5, 8}),
            .d_qkv = values({5, 12}),
            .d_ba = values({5, 4}),
            .d_a_log = values({2}),
            .d_dt_bias = values({2}),
            .spans = {{0, 3}, {3, 2}}};
  }
  ShortConv make(Of<ShortConv>) {
    return {.x = values({5, 6}),
            .weight = values({2, 1, 3}),
            .y = values({5, 2}),
            .bias = values({2}),
            .spans = {{0, 4, 1}, {4, 1, 0, true}},
            .gated = true,
            .states = values({2, 2, 2})};
  }
  ShortConvBackward make(Of<ShortConvBackward>) {
    return {.x = values({5, 6}),
            .weight = values({2, 1, 3}),
            .dy = values({5, 2}),
            .dx = values({5, 6}),
            .d_weight = values({2, 1, 3}),
            .bias = values({2}),
            .d_bias = values({2}),
            .spans = {{0, 3}, {3, 2}},
            .gated = true};
  }
  AttentionBackward make(Of<AttentionBackward>) {
    return {.shape = attention(),
            .q = heads(),
            .k = heads(),
            .v = heads(),
            .out = values({3, 8}),
            .lse = values({1, 2, 3}),
            .d_out = values({3, 8}),
            .dq = heads(),
            .dk = heads(),
            .dv = heads(),
            .sinks = values({2}),
            .d_sinks = values({2})};
  }
  MergeAttention make(Of<MergeAttention>) {
    return {.shape = attention(),
            .piece_out = values({3, 8}),
            .piece_lse = values({1, 2, 3}),
            .out = values({3, 8}),
            .lse = values({1, 2, 3})};
  }

  Route make(Of<Route>) {
    return {.rule = {.top_k = 2},
            .logits = values({5, 4}),
            .choice_bias = values({4}),
            .experts = ids({5, 2}, 4),
            .weights = values({5, 2}),
            .probability_sums = values({4}, DType::f64)};
  }
  RouteBackward make(Of<RouteBackward>) {
    return {.rule = {.top_k = 2},
            .logits = values({5, 4}),
            .experts = ids({5, 2}, 4),
            .d_weights = values({5, 2}),
            .d_logits = values({5, 4}),
            .d_probabilities = values({4})};
  }
  BalanceLoss make(Of<BalanceLoss>) {
    return {.sums = squares(10), .loss = values({1}, DType::f64), .gradient = values({4}, DType::f64)};
  }
  GroupByExpert make(Of<GroupByExpert>) {
    const int64_t rows = most_rows(10, 4, /*capacity=*/2);
    return {.experts = ids({5, 2}, 4),
            .counts = ids({4}, 9),
            .row = ids({5, 2}, 9),
            .token = ids({rows}, 9),
            .pair = ids({rows}, 9),
            .capacity = 2};
  }
  GatherRows make(Of<GatherRows>) { return {.x = values({7, 4}), .index = ids({5}, 7), .out = values({5, 4})}; }
  CombineRows make(Of<CombineRows>) {
    return {.x = values({7, 4}), .index = ids({3, 2}, 7), .out = values({3, 4}), .weights = values({3, 2})};
  }
  ScaleRows make(Of<ScaleRows>) { return {.x = values({3, 4}), .factors = values({3}), .y = values({3, 4})}; }
  DotRows make(Of<DotRows>) {
    return {.a = values({3, 4}), .b = values({3, 4}), .out = values({3}), .factors = values({4})};
  }

  ScaleColumns make(Of<ScaleColumns>) {
    return {.x = values({3, 4}), .factors = values({4}), .y = values({3, 4}), .bias = values({4}), .offset = 1};
  }
  DotColumns make(Of<DotColumns>) {
    return {.a = values({3, 4}), .b = values({3, 4}), .out = values({4}), .divisors = positive({4})};
  }
  LowRankNorms make(Of<LowRankNorms>) {
    const Tensor large = positive({4});
    for (float& each : large.span<float>()) each += 100;  // what is below a root stays positive
    return {.squares = large,
            .products = values({2, 4}),
            .gram = positive({2, 2}),
            .b = values({4, 2}),
            .magnitudes = values({4}),
            .norms = values({4}),
            .factors = values({4}),
            .scale = 0.5};
  }

  CrossEntropy make(Of<CrossEntropy>) {
    return {.logits = values({3, 5}),
            .targets = ids({3}, 5),
            .loss = values({3}),
            .weights = values({3}),
            .gradient = true};
  }

  JensenShannon make(Of<JensenShannon>) {
    return {.logits = values({3, 5}),
            .teacher = values({3, 5}),
            .targets = ids({3}, 5),
            .loss = values({3}),
            .gradient = true};
  }

  Adam make(Of<Adam>) {
    return {.parameter = values({6}),
            .exp_avg = values({6}),
            .exp_avg_sq = positive({6}),
            .gradient = values({6}),
            .parameter_copy = values({6}, DType::bf16)};
  }
  Sgd make(Of<Sgd>) {
    return {.parameter = values({6}),
            .momentum_buffer = values({6}),
            .gradient = values({6}),
            .parameter_copy = values({6}, DType::bf16),
            .momentum = 0.9};
  }
  Adagrad make(Of<Adagrad>) {
    return {.parameter = values({6}),
            .sum = positive({6}),
            .gradient = values({6}),
            .parameter_copy = values({6}, DType::bf16)};
  }
  RmsProp make(Of<RmsProp>) {
    return {.parameter = values({6}),
            .square = positive({6}),
            .gradient = values({6}),
            .parameter_copy = values({6}, DType::bf16)};
  }
  Lion make(Of<Lion>) {
    return {.parameter = values({6}),
            .exp_avg = values({6}),
            .gradient = values({6}),
            .parameter_copy = values({6}, DType::bf16)};
  }
  LambDirection make(Of<LambDirection>) {
    return {.parameter = values({6}),
            .exp_avg = values({6}),
            .exp_avg_sq = positive({6}),
            .gradient = values({6}),
            .direction = values({6})};
  }
  MomentumDirection make(Of<MomentumDirection>) {
    return {.momentum_buffer = values({6}), .gradient = values({6}), .direction = values({6})};
  }
  ApplyDirection make(Of<ApplyDirection>) {
    return {.parameter = values({6}),
            .direction = values({6}),
            .parameter_copy = values({6}, DType::bf16),
            .squares = squares(2)};
  }

  CustomUpdate make(Of<CustomUpdate>) {
    return {.parameter = values({6}),
            .states = {values({6}), values({6})},
            .gradient = values({6}),
            .parameter_copy = values({6}, DType::bf16),
            .rule = {.name = "sum of both", .update = [](const UpdatedElements& of) {
                       for (size_t i = 0; i < of.parameter.size(); ++i) {
                         of.states[0][i] += of.gradient[i];
                         of.states[1][i] -= of.gradient[i];
                         of.parameter[i] += of.states[0][i] * of.states[1][i];
                       }
                     }}};
  }

  Quantize8 make(Of<Quantize8>) { return {.x = values({6}), .codes = codes({6}), .scales = values({2}), .block = 4}; }
  Dequantize8 make(Of<Dequantize8>) {
    return {.codes = codes({6}), .scales = values({2}), .x = values({6}), .block = 4};
  }
  QuantizeBlocks make(Of<QuantizeBlocks>) {
    const Weight weight = quantized({2, 64});
    return {.x = values({2, 64}), .codes = weight.values, .scales = weight.scales};
  }
  DequantizeBlocks make(Of<DequantizeBlocks>) { return {.weight = quantized({2, 64}), .x = values({2, 64})}; }
  DecodeScales make(Of<DecodeScales>) {
    return {.codes = codes({300}), .nested = values({3}), .scales = values({300})};
  }
  RoundStochastic make(Of<RoundStochastic>) { return {.x = values({6}), .y = values({6}, DType::bf16), .key = 1}; }
  EncodeMxfp8 make(Of<EncodeMxfp8>) { return {.x = values({40}), .codes = codes({40}), .scales = codes({2})}; }
  DecodeMxfp8 make(Of<DecodeMxfp8>) { return {.codes = codes({40}), .scales = codes({2}), .x = values({40})}; }
  RoundToGrid make(Of<RoundToGrid>) { return {.x = values({3, 40}), .y = values({3, 40})}; }
  RowRanges make(Of<RowRanges>) { return {.x = values({3, 6}), .ranges = values({3, 2})}; }
  RoundRows make(Of<RoundRows>) { return {.x = values({3, 6}), .ranges = positive({3, 2}), .y = values({3, 6})}; }
  KeepMasked make(Of<KeepMasked>) { return {.bits = codes({2}), .x = values({11}), .y = values({11}), .first = 3}; }
  EncodeWire make(Of<EncodeWire>) {
    return {.x = values({2, 48}),
            .records = codes({2 * wire_record_bytes(48, 4)}),
            .error = values({2, 48}),
            .bits = 4,
            .parts = 2,
            .beta = 0.5};
  }
  DecodeWire make(Of<DecodeWire>) {
    const Tensor x = values({3, 48});
    const EncodeWire encoded{.x = x, .records = codes({3 * wire_record_bytes(48, 8)}), .parts = 3};
    reference::run(encoded);
    return {.records = encoded.records, .y = values({48}), .terms = 3};
  }
  RoundFp8 make(Of<RoundFp8>) { return {.x = values({6}), .y = values({6}), .largest = positive({1})}; }

  OneBitEncode make(Of<OneBitEncode>) {
    return {.x = values({11}), .error = values({11}), .bits = codes({2}), .scale = values({1})};
  }
  OneBitDecode make(Of<OneBitDecode>) { return {.bits = codes({2}), .scale = values({1}), .y = values({11})}; }
  Precondition make(Of<Precondition>) { return {.x = values({6}), .second_moment = positive({6}), .y = values({6})}; }
  GreatestRatio make(Of<GreatestRatio>) { return {.a = positive({6}), .b = positive({6}), .out = values({1})}; }
  Orthonormalize make(Of<Orthonormalize>) { return {.x = values({2, 6}), .key = 1}; }

  /// The operations that take a weight, with one of codes.
  MatMul quantized_product() {
    return {
        .a = values({3, 64}), .b = quantized({4, 64}), .c = values({3, 4}), .bias = values({4}), .transpose_b = true};
  }
  Embedding quantized_lookup() { return {.table = quantized({7, 64}), .ids = ids({5}, 7), .out = values({5, 64})}; }

 private:
  Tensor values(Shape shape, DType dtype = DType::f32) { return random_tensor(memory_, shape, dtype, ++seed_); }
  Tensor positive(Shape shape) {
    const Tensor x = values(shape);
    for (float& value : x.span<float>()) value = std::abs(value);
    return x;
  }
  Tensor squares(int64_t count) {
    const Tensor x = values({count}, DType::f64);
    for (double& value : x.span<double>()) value *= value;
    return x;
  }
  Tensor ids(Shape shape, int64_t limit) { return random_ids(memory_, shape, limit, ++seed_); }
  /// What rows draw random numbers by.
  Tensor rows(int64_t count) {
    const Tensor x = Tensor::zeros(memory_, {count}, DType::i64, Category::activations);
    for (int64_t i = 0; i < count; ++i) x.data<int64_t>()[i] = 1000 + i;
    return x;
  }
  Tensor codes(Shape shape) {
    const Tensor x = Tensor::zeros(memory_, shape, DType::u8, Category::activations);
    for (int64_t i = 0; i < x.numel(); ++i) x.data<uint8_t>()[i] = static_cast<uint8_t>(37 * i);
    return x;
  }
  Weight quantized(Shape shape) {
    const Tensor x = values(shape);
    const Weight weight{Tensor::empty(memory_, shape, DType::i8, Category::activations),
                        Tensor::empty(memory_, scales_shape(shape), DType::f16, Category::activations)};
    reference::run(QuantizeBlocks{.x = x, .codes = weight.values, .scales = weight.scales});
    return weight;
  }
  /// Three tokens of two heads of four elements, in rows of 20 that hold other things too.
  Heads heads() { return {.base = values({3, 20}), .offset = 6, .token_stride = 20}; }
  static AttentionShape attention() {
    return {.batch = 1, .q_length = 3, .k_length = 3, .num_heads = 2, .num_kv_heads = 2, .head_dim = 4};
  }

  Memory& memory_;
  uint64_t seed_ = 0;
};

/// Calls f(op) with a sample of each operation in turn, and with samples of those that take a weight of codes.
template <class F>
void for_each_typed_sample(Memory& memory, const F& f) {
  OperationSamples samples(memory);
#define NOUGHT_SAMPLE(Op) f(samples.make(Of<Op>{}));
  NOUGHT_OPERATIONS(NOUGHT_SAMPLE)
#undef NOUGHT_SAMPLE
  f(samples.quantized_product());
  f(samples.quantized_lookup());
}

}  // namespace nought::test
