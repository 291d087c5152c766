// The arguments of an operation as text, for whoever reads a trace.
#pragma once

#include <string>
#include <type_traits>

#include <fmt/core.h>

#include "nought/kernels/ops.h"

namespace nought {

namespace detail {

/// Adds what visit() lists to a text.
class ArgumentText {
 public:
  explicit ArgumentText(std::string& text) : text_(text) {}

  void operator()(std::string_view name, const Tensor& tensor, const Use& /*use*/) {
    if (tensor.defined()) add(name, tensor.str());
  }
  void operator()(std::string_view name, const StridedRows& rows, const Use& /*use*/) {
    if (rows.base.defined()) add(name, fmt::format("{} rows in {}", rows.count, rows.base));
  }
  void operator()(std::string_view name, const std::vector<Tensor>& tensors, const Use& use) {
    for (const Tensor& tensor : tensors) (*this)(name, tensor, use);
  }
  template <class T>
  requires(!HasTensors<T>) void operator()(std::string_view name, const T& value) {
    if constexpr (Visitable<T>) {
      value.visit(*this);
    } else if constexpr (std::is_same_v<T, bool>) {
      if (value) add_word(name);
    } else if constexpr (std::is_arithmetic_v<T>) {
      add(name, fmt::format("{}", value));
    } else if constexpr (std::is_enum_v<T>) {
      add(name, name_of(value));
    } else if constexpr (std::is_same_v<T, std::string>) {
      add(name, value);
    } else if (!value.empty()) {  // a list
      add(name, fmt::format("{}", value.size()));
    }
  }

 private:
  void add_word(std::string_view word) {
    if (!text_.empty()) text_ += ", ";
    text_ += word;
  }
  void add(std::string_view name, std::string_view value) {
    add_word(name);
    text_ += ' ';
    text_ += value;
  }

  std::string& text_;
};

}  // namespace detail

/// "a f32[3, 5], b f32[7, 5], c f32[3, 7], transpose_b": tensors that are defined, numbers, switches that are on. Rows
/// of a wider tensor are "q 8 rows in f32[8, 24]". A list of something else is told by its length.
template <class Op>
std::string arguments_of(const Op& op) {
  std::string text;
  detail::ArgumentText visitor(text);
  op.visit(visitor);
  return text;
}

}  // namespace nought
