// What an operation tells about itself: the tensors it uses, how it uses them, and its plain parameters.
//
// Every argument struct of kernels/ops has one member template, visit(v), which names each member once:
//
//   template <class V> void visit(V& v) const {
//     v("x", x, kReads);                               // a tensor, and how it is used
//     v("to", to.rows(tokens, heads, dim), kWrites);   // a part of a wider tensor
//     v("eps", eps);                                   // a plain parameter
//   }
//
// Checks of what is defined, watching, bytes moved and traces read that list; none of them has a list of its own. Three
// members beside visit() say what no list of tensors can say. Most operations have none of them:
//   double flops() const        the floating-point operations, where they are worth counting
//   std::string label() const   what tells runs of different shapes apart in a profile
//   void dry_run() const       writes, without computing, what the host reads of the results (see plan/dry_run.h)
#pragma once

#include <concepts>
#include <optional>
#include <string_view>
#include <vector>

#include "nought/tensor/tensor.h"

namespace nought {

/// What an operation does with a tensor.
enum class Role : uint8_t {
  in,       // It reads the tensor.
  out,      // It overwrites the tensor, whatever that held.
  in_out,   // It reads the tensor and writes it.
  scratch,  // It writes the tensor and reads it again. What remains in it means nothing.
};

/// How an operation uses one of its tensors: the role, and what is finer than the role. Made from one of the four
/// constants below: kReads.if_defined(), kWrites.adding(accumulate).
struct Use {
  Role role = Role::in;
  bool is_optional = false;      // The tensor may be undefined.
  bool may_be_infinite = false;  // Infinity is a proper result.
  int64_t rows = -1;             // Rows that are read or written, if they are not all.
  std::string_view result = {};  // What the tensor is called when it was written, if it has another name then.

  constexpr bool reads() const { return role == Role::in || role == Role::in_out; }
  constexpr bool writes() const { return role == Role::out || role == Role::in_out; }

  constexpr Use if_defined() const {
    Use use = *this;
    return use.is_optional = true, use;
  }
  /// Adds to what the tensor holds if `accumulate`.
  constexpr Use adding(bool accumulate) const {
    Use use = *this;
    if (accumulate) use.role = Role::in_out;
    return use;
  }
  /// Touches `count` rows of the last dimension alone, such as the rows of a table that ids name.
  constexpr Use of_rows(int64_t count) const {
    Use use = *this;
    return use.rows = count, use;
  }
  constexpr Use perhaps_infinite() const {
    Use use = *this;
    return use.may_be_infinite = true, use;
  }
  /// The tensor is turned into something else, which messages call `name`.
  constexpr Use becoming(std::string_view name) const {
    Use use = *this;
    return use.result = name, use;
  }
};
inline constexpr Use kReads{Role::in}, kWrites{Role::out}, kUpdates{Role::in_out}, kScratch{Role::scratch};

/// Rows of `width` elements in a wider tensor, seen flat: row i begins at element offset + i * stride.
struct StridedRows {
  const Tensor& base;
  int64_t offset = 0, count = 0, stride = 0, width = 0;
  int64_t used = 0;  // elements of each row that are read or written; the others lie between them

  /// Row i as a tensor.
  Tensor row(int64_t i) const { return base.flat(offset + i * stride, offset + i * stride + width); }
};

/// One tensor of an operation, or rows of it, as visit() lists it.
struct Operand {
  std::string_view name;
  const Tensor& tensor;
  Use use;
  std::optional<StridedRows> rows = {};

  std::string_view result_name() const { return use.result.empty() ? name : use.result; }
  /// The elements that are read, or written, or both; 0 if the tensor is undefined.
  int64_t elements() const;
  /// The bytes that must be read and written at least: what is read and written counts twice.
  double bytes_moved() const;
};

namespace detail {

/// What may not be listed as a plain parameter: a tensor, rows of one, several, or a weight.
template <class T>
concept HasTensors = std::same_as<T, Tensor> || std::same_as<T, std::vector<Tensor>> || requires(const T& t) {
  { t.base } -> std::convertible_to<const Tensor&>;
} || requires(const T& t) {
  { t.values } -> std::convertible_to<const Tensor&>;
};

/// Hands operands to `f` and leaves plain parameters out.
template <class F>
struct Operands {
  F& f;

  void operator()(std::string_view name, const Tensor& tensor, const Use& use) { f(Operand{name, tensor, use}); }
  void operator()(std::string_view name, const StridedRows& rows, const Use& use) {
    f(Operand{name, rows.base, use, rows});
  }
  void operator()(std::string_view name, const std::vector<Tensor>& tensors, const Use& use) {
    for (const Tensor& tensor : tensors) f(Operand{name, tensor, use});
  }
  template <class T>
  requires(!HasTensors<T>) void operator()(std::string_view /*name*/, const T& /*parameter*/) {}
};

struct Nothing {
  template <class... Ts>
  void operator()(const Ts&...) {}
};

}  // namespace detail

/// A struct with visit().
template <class T>
concept Visitable = requires(const T& t, detail::Nothing& v) {
  t.visit(v);
};

/// Calls f(const Operand&) for each tensor of the operation in turn, undefined ones included. The tensors of a list
/// come one by one.
template <class Op, class F>
void for_each_operand(const Op& op, F&& f) {
  detail::Operands<F> visitor{f};
  op.visit(visitor);
}

}  // namespace nought
