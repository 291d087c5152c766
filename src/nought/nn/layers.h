// The layers of a decoder: each declares its parameters in a Unit and computes with the functions of autograd.
#pragma once

#include <string>
#include <vector>

#include "nought/autograd/functions.h"

namespace nought {

/// y = x W + b. Several adjacent parameters may form the weight (q, k and v as one product): give one name and one
/// output size for each.
class Linear {
 public:
  struct Options {
    int64_t in = 0;
    std::vector<int64_t> out;        // one per name
    std::vector<std::string> names;  // "...q_proj"; ".weight" and ".bias" are added
    bool bias = false;
    WeightLayout layout = WeightLayout::out_in;
    double std = 0.02;
  };
  Linear() = default;
  Linear(Unit& unit, const Options& options);
  Var operator()(Tape& tape, const Var& x) const { return linear(tape, x, weight_, bias_, layout_); }

 private:
  ParameterView weight_, bias_;
  WeightLayout layout_ = WeightLayout::out_in;
};

enum class NormKind : uint8_t { rms, layer };

class Norm {
 public:
  Norm() = default;
  /// Declares name.weight, and name.bias for a LayerNorm.
  Norm(Unit& unit, const std::string& name, NormKind kind, int64_t features, double eps);
  Var operator()(Tape& tape, const Var& x) const;

 private:
  NormKind kind_ = NormKind::rms;
  ParameterView weight_, bias_;
  double eps_ = 1e-6;
};

/// What the tokens of a batch have in common for attention: `batch` sequences of `length` tokens and their positions.
struct Sequences {
  int64_t batch = 0, length = 0;
  Tensor positions;  // [batch * length] i32
};

/// The keys and values of one sequence, kept between calls: generation reads them instead of computing them again.
struct KvCache {
  Tensor k, v;         // [capacity, num_kv_heads * head_dim]
  int64_t length = 0;  // tokens held
};

class SelfAttention {
 public:
  struct Options {
    int64_t hidden = 0;
    PackedHeads heads;
    double scale = 1;
    int64_t window = 0;
    Linear::Options qkv, out;
  };
  SelfAttention() = default;
  SelfAttention(Unit& unit, const Options& options);
  /// tables may be null: no rotation. cache may be null; with one, batch must be 1 and nothing is recorded.
  Var operator()(Tape& tape, const Var& x, const Sequences& sequences, const RopeTables* tables, KvCache* cache) const;

 private:
  Tensor attend_cached(Tape& tape, const Tensor& qkv, int64_t length, KvCache& cache) const;

  PackedHeads heads_;
  double scale_ = 1;
  int64_t window_ = 0;
  Linear qkv_, out_;
};

/// down(activation(gate) * up) when gated, down(activation(up)) otherwise.
class Mlp {
 public:
  struct Options {
    bool gated = true;
    Activation activation = Activation::silu;
    Linear::Options up, down;  // gated: `up` packs [gate | up]
  };
  Mlp() = default;
  Mlp(Unit& unit, const Options& options);
  Var operator()(Tape& tape, const Var& x) const;

 private:
  bool gated_ = true;
  Activation activation_ = Activation::silu;
  Linear up_, down_;
};

/// cos and sin of position * theta^(-2i / rotary_dim), computed in f64 and rounded once. [positions, rotary_dim / 2].
RopeTables make_rope_tables(const Context& context, int64_t positions, int64_t rotary_dim, double theta, DType dtype);

}  // namespace nought
