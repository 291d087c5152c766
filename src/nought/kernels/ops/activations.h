// Activations and their gradients, plain and gated, soft caps, and bounds.
#pragma once

#include "nought/kernels/operation.h"

namespace nought {

enum class Activation : uint8_t { gelu_erf, gelu_tanh, silu, relu };
std::string_view name_of(Activation activation);

/// y = activation(x).
struct Activate {
  Tensor x, y;
  Activation activation = Activation::gelu_tanh;

  template <class V>
  void visit(V& v) const {
    v("x", x, kReads);
    v("y", y, kWrites);
    v("activation", activation);
  }
};

/// dx = dy * activation'(x). dx may be dy.
struct ActivateBackward {
  Tensor x, dy, dx;
  Activation activation = Activation::gelu_tanh;

  template <class V>
  void visit(V& v) const {
    v("x", x, kReads);
    v("dy", dy, kReads);
    v("dx", dx, kWrites);
    v("activation", activation);
  }
};

/// What gates multiply by.
enum class GateKind : uint8_t { sigmoid, silu };
constexpr std::string_view name_of(GateKind kind) { return kind == GateKind::silu ? "silu" : "sigmoid"; }

/// y = x * sigmoid(gate), or x * silu(gate). y may be x.
struct Gate {
  Tensor x, gate, y;
  GateKind kind = GateKind::sigmoid;

  template <class V>
  void visit(V& v) const {
    v("x", x, kReads);
    v("gate", gate, kReads);
    v("y", y, kWrites);
    v("kind", kind);
  }
};

/// dx and d_gate. dx may be dy.
struct GateBackward {
  Tensor x, gate, dy, dx, d_gate;
  GateKind kind = GateKind::sigmoid;

  template <class V>
  void visit(V& v) const {
    v("x", x, kReads);
    v("gate", gate, kReads);
    v("dy", dy, kReads);
    v("dx", dx, kWrites);
    v("d_gate", d_gate, kWrites);
    v("kind", kind);
  }
};

/// y = activation(gate) * up, with gate_up: [rows, 2F] = [gate | up] per row, y: [rows, F]. silu is SwiGLU.
struct GatedActivate {
  Tensor gate_up, y;
  Activation activation = Activation::silu;

  template <class V>
  void visit(V& v) const {
    v("gate_up", gate_up, kReads);
    v("y", y, kWrites);
    v("activation", activation);
  }
};

/// d_gate_up: [rows, 2F] from dy: [rows, F].
struct GatedActivateBackward {
  Tensor gate_up, dy, d_gate_up;
  Activation activation = Activation::silu;

  template <class V>
  void visit(V& v) const {
    v("gate_up", gate_up, kReads);
    v("dy", dy, kReads);
    v("d_gate_up", d_gate_up, kWrites);
    v("activation", activation);
  }
};

/// y = (clamp(up, -limit, limit) + 1) * g * sigmoid(alpha * g), g = min(gate, limit): gpt_oss's SwiGLU. gate_up: [rows,
/// 2F], gate and up in turn; y: [rows, F].
struct ClampedSwiglu {
  Tensor gate_up, y;
  double limit = 7, alpha = 1.702;

  template <class V>
  void visit(V& v) const {
    v("gate_up", gate_up, kReads);
    v("y", y, kWrites);
    v("limit", limit);
    v("alpha", alpha);
  }
};

/// d_gate_up: [rows, 2F] from dy: [rows, F]. A clamped value has no gradient.
struct ClampedSwigluBackward {
  Tensor gate_up, dy, d_gate_up;
  double limit = 7, alpha = 1.702;

  template <class V>
  void visit(V& v) const {
    v("gate_up", gate_up, kReads);
    v("dy", dy, kReads);
    v("d_gate_up", d_gate_up, kWrites);
    v("limit", limit);
    v("alpha", alpha);
  }
};

/// x = cap * tanh(x / cap): scores and logits that stay within (-cap, cap).
struct Softcap {
  Tensor x;
  double cap = 1;

  template <class V>
  void visit(V& v) const {
    v("x", x, kUpdates);
    v("cap", cap);
  }
};

/// d *= 1 - (y / cap)^2, where y is what Softcap made.
struct SoftcapBackward {
  Tensor y, d;
  double cap = 1;

  template <class V>
  void visit(V& v) const {
    v("y", y, kReads);
    v("d", d, kUpdates);
    v("cap", cap);
  }
};

/// y = x within [-limit, limit], and the nearer end outside. y may be x.
struct Clamp {
  Tensor x, y;
  double limit = 1;

  template <class V>
  void visit(V& v) const {
    v("x", x, kReads);
    v("y", y, kWrites);
    v("limit", limit);
  }
};

/// dx = dy where x is within [-limit, limit], and 0 outside. dx may be dy.
struct ClampBackward {
  Tensor x, dy, dx;
  double limit = 1;

  template <class V>
  void visit(V& v) const {
    v("x", x, kReads);
    v("dy", dy, kReads);
    v("dx", dx, kWrites);
    v("limit", limit);
  }
};

}  // namespace nought
