#include "nought/kernels/check.h"

#include <string_view>

#include "nought/base/math.h"
#include "nought/kernels/check_argument.h"

namespace nought {

void OperandChecks::operator()(const Operand& operand) {
  const Tensor& tensor = operand.tensor;
  if (!tensor.defined()) {
    require<ShapeError>(operand.use.is_optional, "{}: {} is undefined", operation_, operand.name);
    return;
  }
  const Pool pool = tensor.buffer()->pool();
  if (first_.empty()) first_ = operand.name, pool_ = pool;
  require<DeviceError>(pool != Pool::file, "{}: {} lies in a file, expected memory", operation_, operand.name);
  require<DeviceError>(pool == pool_, "{}: {} lies in {} memory, but {} in {} memory", operation_, operand.name,
                       name_of(pool), first_, name_of(pool_));
}

void check_float(const Argument& a) {
  require<ShapeError>(is_float(a.tensor.dtype()), "{}: {} is {}, expected a floating-point dtype", a.op, a.name,
                      a.tensor);
}

void check_dtype(const Argument& a, DType dtype) {
  require<ShapeError>(a.tensor.dtype() == dtype, "{}: {} is {}, expected dtype {}", a.op, a.name, a.tensor,
                      name_of(dtype));
}

void check_size(const Argument& a, int64_t numel) {
  require<ShapeError>(a.tensor.numel() == numel, "{}: {} is {} with {} elements, expected {}", a.op, a.name, a.tensor,
                      a.tensor.numel(), numel);
}

void check_tensor(const Argument& a, DType dtype, int64_t numel) {
  check_dtype(a, dtype);
  check_size(a, numel);
}

void check_like(const Argument& a, const Tensor& model) { check_tensor(a, model.dtype(), model.numel()); }

namespace {

/// A gradient that may be kept wider than what it is the gradient of.
void check_gradient(const Argument& a, DType dtype, int64_t numel) {
  require<ShapeError>(a.tensor.dtype() == dtype || a.tensor.dtype() == DType::f32, "{}: {} is {}, expected {} or f32",
                      a.op, a.name, a.tensor, name_of(dtype));
  check_size(a, numel);
}

void check_matrix(const Argument& a) {
  check_float(a);
  require<ShapeError>(a.tensor.rank() >= 1 && a.tensor.dim(-1) > 0, "{}: {} is {}, expected [rows, n] with n > 0", a.op,
                      a.name, a.tensor);
}

/// Statistics of rows are kept in the type that sums run in.
void check_statistics(const Argument& a, const Tensor& x) { check_tensor(a, statistics_dtype(x.dtype()), x.rows()); }

/// Ids on a device are not read here: the host checks them where it makes them, and kernels write NaN for wrong ones.
void check_ids(std::string_view op, const Tensor& ids, int64_t table_rows, std::string_view what) {
  if (!ids.on_host()) return;
  const int32_t* id = ids.data<int32_t>();
  for (int64_t t = 0; t < ids.numel(); ++t) {
    require(id[t] >= 0 && id[t] < table_rows, "{}: {} {} at position {} is outside [0, {})", op, what, id[t], t,
            table_rows);
  }
}

void check_heads(std::string_view op, const Heads& x, int64_t tokens, int64_t num_heads, int64_t head_dim) {
  if (tokens == 0) return;
  const int64_t width = x.width(num_heads, head_dim);
  require<ShapeError>(num_heads > 0 && head_dim > 0 && x.stride(head_dim) >= head_dim,
                      "{}: {} heads of {}, {} apart, overlap", op, num_heads, head_dim, x.stride(head_dim));
  require<ShapeError>(tokens == 1 || x.token_stride >= width,
                      "{}: token_stride is {}, expected at least {} ({} heads of {}): tokens would overlap", op,
                      x.token_stride, width, num_heads, head_dim);
  const int64_t end = x.offset + (tokens - 1) * x.token_stride + width;
  require<ShapeError>(x.offset >= 0 && end <= x.base.numel(),
                      "{}: the heads of {} tokens end at element {} of {}, which has {}", op, tokens, end, x.base,
                      x.base.numel());
}

void check_gated(std::string_view op, const Tensor& gate_up, const Tensor& y, std::string_view y_name) {
  check_matrix({op, "gate_up", gate_up});
  require<ShapeError>(gate_up.dim(-1) % 2 == 0, "{}: gate_up is {}, expected an even last dimension [gate | up]", op,
                      gate_up);
  check_tensor({op, y_name, y}, gate_up.dtype(), gate_up.numel() / 2);
}

}  // namespace

void check_shapes(const SumRows& op) {
  check_matrix({"SumRows", "x", op.x});
  check_gradient({"SumRows", "out", op.out}, op.x.dtype(), op.x.dim(-1));
}

void check_shapes(const Gate& op) {
  check_float({"Gate", "x", op.x});
  check_like({"Gate", "gate", op.gate}, op.x);
  check_like({"Gate", "y", op.y}, op.x);
}

void check_shapes(const GateBackward& op) {
  check_float({"GateBackward", "x", op.x});
  check_like({"GateBackward", "gate", op.gate}, op.x);
  check_like({"GateBackward", "dy", op.dy}, op.x);
  check_like({"GateBackward", "dx", op.dx}, op.x);
  check_like({"GateBackward", "d_gate", op.d_gate}, op.x);
}

void check_shapes(const Add& op) {
  check_float({"Add", "a", op.a});
  check_like({"Add", "b", op.b}, op.a);
  check_like({"Add", "out", op.out}, op.a);
}

void check_shapes(const Scale& op) {
  check_float({"Scale", "x", op.x});
  if (op.squares) check_tensor({"Scale", "squares", op.squares}, DType::f64, 1);
}

void check_shapes(const Fill& op) { check_float({"Fill", "x", op.x}); }

void check_shapes(const Cast& op) {
  check_float({"Cast", "x", op.x});
  check_float({"Cast", "y", op.y});
  check_size({"Cast", "y", op.y}, op.x.numel());
}

void check_shapes(const AddTo& op) {
  check_float({"AddTo", "x", op.x});
  check_float({"AddTo", "into", op.into});
  check_size({"AddTo", "into", op.into}, op.x.numel());
}

void check_shapes(const SumTensors& op) {
  require<ShapeError>(!op.inputs.empty(), "SumTensors: no inputs, expected at least one");
  for (const Tensor& input : op.inputs) check_like({"SumTensors", "an input", input}, op.out);
}

void check_shapes(const Activate& op) {
  check_float({"Activate", "x", op.x});
  check_like({"Activate", "y", op.y}, op.x);
}

void check_shapes(const ActivateBackward& op) {
  check_float({"ActivateBackward", "x", op.x});
  check_like({"ActivateBackward", "dy", op.dy}, op.x);
  check_like({"ActivateBackward", "dx", op.dx}, op.x);
}

void check_shapes(const GatedActivate& op) { check_gated("GatedActivate", op.gate_up, op.y, "y"); }

void check_shapes(const GatedActivateBackward& op) {
  check_gated("GatedActivateBackward", op.gate_up, op.dy, "dy");
  check_like({"GatedActivateBackward", "d_gate_up", op.d_gate_up}, op.gate_up);
}

void check_shapes(const RmsNorm& op) {
  check_matrix({"RmsNorm", "x", op.x});
  check_tensor({"RmsNorm", "weight", op.weight}, op.x.dtype(), op.x.dim(-1));
  check_like({"RmsNorm", "y", op.y}, op.x);
  check_statistics({"RmsNorm", "rstd", op.rstd}, op.x);
  if (op.squares) check_statistics({"RmsNorm", "squares", op.squares}, op.x);
  require<ShapeError>(!op.squares || op.width >= op.x.dim(-1), "RmsNorm: rows of {} elements are a part of {}",
                      op.x.dim(-1), op.width);
}

void check_shapes(const RmsNormBackward& op) {
  check_matrix({"RmsNormBackward", "x", op.x});
  check_tensor({"RmsNormBackward", "weight", op.weight}, op.x.dtype(), op.x.dim(-1));
  check_statistics({"RmsNormBackward", "rstd", op.rstd}, op.x);
  check_like({"RmsNormBackward", "dy", op.dy}, op.x);
  check_like({"RmsNormBackward", "dx", op.dx}, op.x);
  check_gradient({"RmsNormBackward", "d_weight", op.d_weight}, op.x.dtype(), op.x.dim(-1));
  if (op.products) check_statistics({"RmsNormBackward", "products", op.products}, op.x);
  require<ShapeError>(!op.products || op.width >= op.x.dim(-1), "RmsNormBackward: rows of {} elements are a part of {}",
                      op.x.dim(-1), op.width);
}

void check_shapes(const LayerNorm& op) {
  check_matrix({"LayerNorm", "x", op.x});
  check_tensor({"LayerNorm", "weight", op.weight}, op.x.dtype(), op.x.dim(-1));
  check_tensor({"LayerNorm", "bias", op.bias}, op.x.dtype(), op.x.dim(-1));
  check_like({"LayerNorm", "y", op.y}, op.x);
  check_statistics({"LayerNorm", "mean", op.mean}, op.x);
  check_statistics({"LayerNorm", "rstd", op.rstd}, op.x);
}

void check_shapes(const LayerNormBackward& op) {
  check_matrix({"LayerNormBackward", "x", op.x});
  check_tensor({"LayerNormBackward", "weight", op.weight}, op.x.dtype(), op.x.dim(-1));
  check_statistics({"LayerNormBackward", "mean", op.mean}, op.x);
  check_statistics({"LayerNormBackward", "rstd", op.rstd}, op.x);
  check_like({"LayerNormBackward", "dy", op.dy}, op.x);
  check_like({"LayerNormBackward", "dx", op.dx}, op.x);
  check_gradient({"LayerNormBackward", "d_weight", op.d_weight}, op.x.dtype(), op.x.dim(-1));
  check_gradient({"LayerNormBackward", "d_bias", op.d_bias}, op.x.dtype(), op.x.dim(-1));
}

void check_shapes(const Embedding& op) {
  const Shape& table = op.table.shape();
  if (op.table.is_quantized()) {
    check_codes("Embedding", "table", op.table);
    check_float({"Embedding", "out", op.out});
  } else {
    check_matrix({"Embedding", "table", op.table.values});
  }
  check_dtype({"Embedding", "ids", op.ids}, DType::i32);
  check_tensor({"Embedding", "out", op.out}, op.table.is_quantized() ? op.out.dtype() : op.table.values.dtype(),
               op.ids.numel() * table[-1]);
  check_ids("Embedding", op.ids, table.numel() / table[-1], "id");
}

void check_shapes(const EmbeddingBackward& op) {
  check_matrix({"EmbeddingBackward", "d_out", op.d_out});
  check_dtype({"EmbeddingBackward", "ids", op.ids}, DType::i32);
  check_size({"EmbeddingBackward", "ids", op.ids}, op.d_out.rows());
  check_matrix({"EmbeddingBackward", "d_table", op.d_table});
  require<ShapeError>(op.d_table.dim(-1) == op.d_out.dim(-1), "EmbeddingBackward: d_table is {}, expected rows of {}",
                      op.d_table, op.d_out.dim(-1));
  check_gradient({"EmbeddingBackward", "d_table", op.d_table}, op.d_out.dtype(), op.d_table.numel());
  check_ids("EmbeddingBackward", op.ids, op.d_table.rows(), "id");
}

void check_shapes(const CopyHeads& op) {
  check_float({"CopyHeads", "from", op.from.base});
  check_float({"CopyHeads", "to", op.to.base});
  if (op.accumulate) check_dtype({"CopyHeads", "to", op.to.base}, op.from.base.dtype());
  check_heads("CopyHeads", op.from, op.tokens, op.broadcast ? 1 : op.num_heads, op.head_dim);
  check_heads("CopyHeads", op.to, op.tokens, op.num_heads, op.head_dim);
}

void check_shapes(const SumHeads& op) {
  check_float({"SumHeads", "from", op.from.base});
  check_dtype({"SumHeads", "to", op.to.base}, op.from.base.dtype());
  check_heads("SumHeads", op.from, op.tokens, op.num_heads, op.head_dim);
  check_heads("SumHeads", op.to, op.tokens, 1, op.head_dim);
}

void check_shapes(const Rope& op) {
  const Tensor& base = op.x.base;
  check_float({"Rope", "x", base});
  require<ShapeError>(op.rotary_dim > 0 && op.rotary_dim % 2 == 0 && op.rotary_dim <= op.head_dim,
                      "Rope: rotary_dim is {}, expected an even number in [2, head_dim = {}]", op.rotary_dim,
                      op.head_dim);
  for (const Argument& table : {Argument{"Rope", "cos", op.cos}, Argument{"Rope", "sin", op.sin}}) {
    check_dtype(table, statistics_dtype(base.dtype()));
    require<ShapeError>(table.tensor.rank() >= 1 && table.tensor.dim(-1) == op.rotary_dim / 2,
                        "Rope: {} is {}, expected [max_positions, {}]", table.name, table.tensor, op.rotary_dim / 2);
  }
  check_size({"Rope", "sin", op.sin}, op.cos.numel());
  check_dtype({"Rope", "positions", op.positions}, DType::i32);
  check_heads("Rope", op.x, op.positions.numel(), op.num_heads, op.head_dim);
  check_ids("Rope", op.positions, op.cos.rows(), "position");
}

void check_shapes(const CrossEntropy& op) {
  check_matrix({"CrossEntropy", "logits", op.logits});
  check_tensor({"CrossEntropy", "targets", op.targets}, DType::i32, op.logits.rows());
  check_statistics({"CrossEntropy", "loss", op.loss}, op.logits);
  if (op.weights.defined()) check_tensor({"CrossEntropy", "weights", op.weights}, DType::f32, op.logits.rows());
  if (!op.targets.on_host()) return;
  const int32_t* target = op.targets.data<int32_t>();
  const int64_t vocab = op.logits.dim(-1);
  for (int64_t i = 0; i < op.targets.numel(); ++i) {
    require(target[i] == op.ignore_index || (target[i] >= 0 && target[i] < vocab),
            "CrossEntropy: target {} at position {} is neither in [0, {}) nor the ignored {}", target[i], i, vocab,
            op.ignore_index);
  }
}

void check_shapes(const JensenShannon& op) {
  check_matrix({"JensenShannon", "logits", op.logits});
  check_matrix({"JensenShannon", "teacher", op.teacher});
  require<ShapeError>(op.teacher.shape() == op.logits.shape() && op.teacher.dtype() == op.logits.dtype(),
                      "JensenShannon: teacher is {}, logits are {}", op.teacher, op.logits);
  check_tensor({"JensenShannon", "targets", op.targets}, DType::i32, op.logits.rows());
  check_statistics({"JensenShannon", "loss", op.loss}, op.logits);
  require(0 <= op.beta && op.beta <= 1, "JensenShannon: beta is {}, expected a number in [0, 1]", op.beta);
}

namespace {

/// What all optimizers share: f32 parameters, any float gradient, and an optional 16-bit copy, of one size.
template <class Op>
void check_update(std::string_view name, const Op& op) {
  check_dtype({name, "parameter", op.parameter}, DType::f32);
  if constexpr (requires { op.gradient; }) {
    check_float({name, "gradient", op.gradient});
    check_size({name, "gradient", op.gradient}, op.parameter.numel());
  }
  if constexpr (requires { op.parameter_copy; }) {
    if (!op.parameter_copy) return;
    check_float({name, "parameter_copy", op.parameter_copy});
    check_size({name, "parameter_copy", op.parameter_copy}, op.parameter.numel());
  }
}

template <class Op>
void check_code(std::string_view name, const Op& op) {
  check_dtype({name, "x", op.x}, DType::f32);
  require<ShapeError>(op.block > 0, "{}: block is {}, expected > 0", name, op.block);
  check_tensor({name, "codes", op.codes}, DType::u8, op.x.numel());
  check_tensor({name, "scales", op.scales}, DType::f32, ceil_div(op.x.numel(), op.block));
}

template <class Op>
void check_mx(std::string_view name, const Op& op) {
  check_float({name, "x", op.x});
  check_tensor({name, "codes", op.codes}, DType::u8, op.x.numel());
  check_tensor({name, "scales", op.scales}, DType::u8, ceil_div(op.x.numel(), kMxBlock));
}

}  // namespace

void check_shapes(const Adam& op) {
  check_update("Adam", op);
  check_like({"Adam", "exp_avg", op.exp_avg}, op.parameter);
  check_like({"Adam", "exp_avg_sq", op.exp_avg_sq}, op.parameter);
}

void check_shapes(const Sgd& op) {
  check_update("Sgd", op);
  if (op.momentum_buffer) check_like({"Sgd", "momentum_buffer", op.momentum_buffer}, op.parameter);
}

void check_shapes(const Adagrad& op) {
  check_update("Adagrad", op);
  check_like({"Adagrad", "sum", op.sum}, op.parameter);
}

void check_shapes(const RmsProp& op) {
  check_update("RmsProp", op);
  check_like({"RmsProp", "square", op.square}, op.parameter);
}

void check_shapes(const Lion& op) {
  check_update("Lion", op);
  check_like({"Lion", "exp_avg", op.exp_avg}, op.parameter);
}

void check_shapes(const LambDirection& op) {
  check_update("LambDirection", op);
  check_like({"LambDirection", "exp_avg", op.exp_avg}, op.parameter);
  check_like({"LambDirection", "exp_avg_sq", op.exp_avg_sq}, op.parameter);
  check_like({"LambDirection", "direction", op.direction}, op.parameter);
}

void check_shapes(const MomentumDirection& op) {
  check_dtype({"MomentumDirection", "momentum_buffer", op.momentum_buffer}, DType::f32);
  check_float({"MomentumDirection", "gradient", op.gradient});
  check_size({"MomentumDirection", "gradient", op.gradient}, op.momentum_buffer.numel());
  check_like({"MomentumDirection", "direction", op.direction}, op.momentum_buffer);
}

void check_shapes(const ApplyDirection& op) {
  check_update("ApplyDirection", op);
  check_like({"ApplyDirection", "direction", op.direction}, op.parameter);
  if (op.squares) check_tensor({"ApplyDirection", "squares", op.squares}, DType::f64, 2);
}

void check_shapes(const OneBitEncode& op) {
  check_dtype({"OneBitEncode", "x", op.x}, DType::f32);
  require<ShapeError>(op.x.numel() > 0, "OneBitEncode: x is {}, expected elements", op.x);
  check_like({"OneBitEncode", "error", op.error}, op.x);
  check_tensor({"OneBitEncode", "bits", op.bits}, DType::u8, ceil_div(op.x.numel(), 8));
  check_tensor({"OneBitEncode", "scale", op.scale}, DType::f32, 1);
}

void check_shapes(const OneBitDecode& op) {
  check_dtype({"OneBitDecode", "y", op.y}, DType::f32);
  check_tensor({"OneBitDecode", "bits", op.bits}, DType::u8, ceil_div(op.y.numel(), 8));
  check_tensor({"OneBitDecode", "scale", op.scale}, DType::f32, 1);
}

void check_shapes(const Precondition& op) {
  check_dtype({"Precondition", "x", op.x}, DType::f32);
  check_like({"Precondition", "second_moment", op.second_moment}, op.x);
  check_like({"Precondition", "y", op.y}, op.x);
}

void check_shapes(const GreatestRatio& op) {
  check_dtype({"GreatestRatio", "a", op.a}, DType::f32);
  check_like({"GreatestRatio", "b", op.b}, op.a);
  check_tensor({"GreatestRatio", "out", op.out}, DType::f32, 1);
  require<ShapeError>(op.a.numel() > 0 && op.eps > 0, "GreatestRatio: {} elements and eps {}, expected more than 0",
                      op.a.numel(), op.eps);
}

void check_shapes(const Orthonormalize& op) {
  check_dtype({"Orthonormalize", "x", op.x}, DType::f32);
  require<ShapeError>(op.x.rank() == 2, "Orthonormalize: x is {}, expected [r, n]", op.x);
}

void check_shapes(const Quantize8& op) { check_code("Quantize8", op); }
void check_shapes(const Dequantize8& op) { check_code("Dequantize8", op); }

void check_shapes(const EncodeMxfp8& op) { check_mx("EncodeMxfp8", op); }
void check_shapes(const DecodeMxfp8& op) { check_mx("DecodeMxfp8", op); }

void check_shapes(const RoundStochastic& op) {
  check_dtype({"RoundStochastic", "x", op.x}, DType::f32);
  check_float({"RoundStochastic", "y", op.y});
  require<ShapeError>(size_of(op.y.dtype()) == 2, "RoundStochastic: y is {}, expected bf16 or f16", op.y);
  check_size({"RoundStochastic", "y", op.y}, op.x.numel());
}

void check_shapes(const RoundFp8& op) {
  check_float({"RoundFp8", "x", op.x});
  check_like({"RoundFp8", "y", op.y}, op.x);
  if (op.largest) return check_tensor({"RoundFp8", "largest", op.largest}, DType::f32, 1);
  require(op.scale > 0, "RoundFp8: the scale is {}, expected more than 0", op.scale);
}

void check_shapes(const AbsMax& op) {
  check_float({"AbsMax", "x", op.x});
  check_tensor({"AbsMax", "out", op.out}, DType::f32, 1);
}

void check_shapes(const SumElements& op) {
  check_float({"SumElements", "x", op.x});
  check_tensor({"SumElements", "out", op.out}, DType::f64, 1);
}

void check_shapes(const SumSquares& op) {
  check_float({"SumSquares", "x", op.x});
  check_tensor({"SumSquares", "out", op.out}, DType::f64, 1);
}

}  // namespace nought
