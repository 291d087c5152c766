#include "nought/autograd/fp8.h"

#include <algorithm>
#include <cmath>

#include "nought/comm/mesh.h"
#include "nought/kernels/rounding.h"

namespace nought {

Tensor Fp8Rounding::operator()(const Context& context, const Tensor& x) const {
  if (scale == 0) return x;
  const Tensor y = context.empty(x.shape(), x.dtype(), Category::workspace);
  context.run(RoundFp8{.x = x, .y = y, .format = format, .scale = scale});
  return y;
}

size_t Fp8Recipe::add_layer() {
  noted_.resize(noted_.size() + kRoles);
  histories_.resize(noted_.size());
  return noted_.size() / kRoles - 1;
}

double Fp8Recipe::scale_for(double largest, Fp8 format) const {
  if (largest == 0 || !std::isfinite(largest)) return 1;
  constexpr int kLimit = 100;  // far from where bf16 ends
  const int exponent = std::ilogb(double{Fp8Format::of(format).largest} / largest) - options_.margin;
  return std::ldexp(1.0, std::clamp(exponent, -kLimit, kLimit));
}

Fp8Rounding Fp8Recipe::rounding(const Context& context, const Tensor& x, size_t layer, Role role, bool note) {
  const size_t slot = layer * kRoles + static_cast<size_t>(role);
  const Fp8 format = role == Role::gradient ? Fp8::e5m2 : Fp8::e4m3;
  const std::vector<double>& history = histories_[slot];
  // A first step has no history: it scales by what it sees.
  const bool own = options_.scaling == Fp8Scaling::current || history.empty();
  if (!own && !note) return {format, scale_for(*std::max_element(history.begin(), history.end()), format)};
  const Tensor out = context.zeros({1}, DType::f32, Category::workspace);
  context.run(AbsMax{.x = x, .out = out});
  const double largest = out.item();
  if (note && !(largest <= noted_[slot])) noted_[slot] = largest;
  return {format, scale_for(own ? largest : *std::max_element(history.begin(), history.end()), format)};
}

void Fp8Recipe::finish_step(const Context& context, Communicator& ranks) {
  if (options_.scaling != Fp8Scaling::delayed) return;
  for (double& each : noted_)
    if (std::isnan(each)) each = HUGE_VAL;  // a maximum over ranks would lose it
  all_reduce_values(ranks, context, noted_, ReduceOp::max);
  for (size_t slot = 0; slot < noted_.size(); ++slot) {
    std::vector<double>& history = histories_[slot];
    const double largest = std::exchange(noted_[slot], 0);
    if (!std::isfinite(largest)) continue;
    if (static_cast<int64_t>(history.size()) == options_.history) history.erase(history.begin());
    history.push_back(largest);
  }
}

std::vector<double> Fp8Recipe::state() const {
  std::vector<double> state{static_cast<double>(histories_.size())};
  for (const std::vector<double>& history : histories_) {
    state.push_back(static_cast<double>(history.size()));
    state.insert(state.end(), history.begin(), history.end());
  }
  return state;
}

bool Fp8Recipe::restore(std::span<const double> state) {
  if (state.empty() || state[0] != static_cast<double>(histories_.size())) return false;
  std::vector<std::vector<double>> histories;
  size_t at = 1;
  while (histories.size() < histories_.size()) {
    if (at >= state.size() || !(state[at] >= 0 && state[at] <= static_cast<double>(state.size() - at - 1)))
      return false;
    const auto count = static_cast<size_t>(state[at++]);
    const size_t kept = std::min(count, static_cast<size_t>(options_.history));
    histories.emplace_back(state.begin() + static_cast<std::ptrdiff_t>(at + count - kept),
                           state.begin() + static_cast<std::ptrdiff_t>(at + count));
    at += count;
  }
  histories_ = std::move(histories);
  return true;
}

}  // namespace nought
