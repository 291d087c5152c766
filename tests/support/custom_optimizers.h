// Optimizers from outside that do the arithmetic of built-in ones, in the order of kernels/cpu/optimizers.cpp: products
// and sums that are fused there are fused here.
#pragma once

#include <cmath>
#include <memory>

#include "nought/optim/custom_optimizer.h"

namespace nought::test {

/// AdamOptions{.decoupled_decay = true}.
class OwnAdamW final : public CustomOptimizer {
 public:
  std::string name() const override { return "own AdamW"; }
  std::vector<StateKind> states() const override { return {StateKind::exp_avg, StateKind::exp_avg_sq}; }
  void update(const UpdateNumbers& numbers, const UpdatedElements& elements) const override {
    const double beta1 = 0.9, beta2 = 0.999, eps = 1e-8, at = static_cast<double>(numbers.step);
    const auto step = static_cast<float>(numbers.lr / (1 - std::pow(beta1, at)));
    const auto inverse_root = static_cast<float>(1 / std::sqrt(1 - std::pow(beta2, at)));
    const auto keep = static_cast<float>(1 - numbers.lr * numbers.weight_decay);
    const auto kept1 = static_cast<float>(beta1), rest1 = static_cast<float>(1 - beta1);
    const auto kept2 = static_cast<float>(beta2), rest2 = static_cast<float>(1 - beta2);
    for (size_t i = 0; i < elements.parameter.size(); ++i) {
      const float g = elements.gradient[i], p = elements.parameter[i] * keep;
      float &m = elements.states[0][i], &v = elements.states[1][i];
      m = std::fma(kept1, m, rest1 * g);
      v = std::fma(kept2, v, rest2 * (g * g));
      const float root = std::fma(std::sqrt(v), inverse_root, static_cast<float>(eps));
      elements.parameter[i] = std::fma(-step, m / root, p);
    }
  }
};

/// SgdOptions with a momentum, or without.
class OwnSgd final : public CustomOptimizer {
 public:
  explicit OwnSgd(double momentum) : momentum_(momentum) {}
  std::string name() const override { return "own SGD"; }
  std::vector<StateKind> states() const override {
    return momentum_ != 0 ? std::vector{StateKind::momentum_buffer} : std::vector<StateKind>{};
  }
  void update(const UpdateNumbers& numbers, const UpdatedElements& elements) const override {
    const auto lr = static_cast<float>(numbers.lr), decay = static_cast<float>(numbers.weight_decay);
    const auto kept = static_cast<float>(numbers.step == 1 ? 0 : momentum_);
    for (size_t i = 0; i < elements.parameter.size(); ++i) {
      float& p = elements.parameter[i];
      float g = std::fma(decay, p, elements.gradient[i]);
      if (momentum_ != 0) g = elements.states[0][i] = std::fma(kept, elements.states[0][i], g);
      p = std::fma(-lr, g, p);
    }
  }

 private:
  double momentum_;
};

}  // namespace nought::test
