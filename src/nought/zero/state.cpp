#include "nought/zero/state.h"

#include <cmath>

#include "nought/kernels/cpu/cpu.h"
#include "nought/kernels/normal.h"
#include "nought/tensor/random.h"

namespace nought {

namespace {

/// x[i] = value_of(u), where u in (0, 1] is the (first + i)-th value of the key, rounded to fp32 and then to x's dtype.
template <typename F>
void fill_values(const Tensor& x, uint64_t key, int64_t first, const F& value_of) {
  visit_float(x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* out = x.data<T>();
    for (int64_t i = 0; i < x.numel(); ++i)
      out[i] = T(static_cast<float>(value_of(uniform_at(key, static_cast<uint64_t>(first + i)))));
  });
}

}  // namespace

void fill(const Context& context, const StateSource& source, StateKind kind, const Parameter& parameter,
          std::span<const Interval> elements, const Tensor& destination) {
  if (destination.on_host()) return source.fill(kind, parameter, elements, destination);
  const Tensor host = Tensor::empty(*context.memory, destination.shape(), destination.dtype(),
                                    destination.buffer()->category(), Pool::host);
  source.fill(kind, parameter, elements, host);
  context.copy(host, destination);
}

void InitialState::fill(StateKind kind, const Parameter& parameter, std::span<const Interval> elements,
                        const Tensor& destination) const {
  const Init init = kind == StateKind::master ? parameter.init : Init::zeros();
  const uint64_t key = stable_hash(parameter.name, seed_);
  for_each_interval(elements, destination, [&](Interval interval, const Tensor& values) {
    switch (init.kind) {
      case Init::Kind::normal:
        return fill_normal(values, key, interval.begin, init.std);
      case Init::Kind::uniform:
        return fill_values(values, key, interval.begin, [&](double u) { return init.bound * (2 * u - 1); });
      case Init::Kind::log_uniform:
        return fill_values(values, key, interval.begin,
                           [&](double u) { return std::log(init.least + (init.bound - init.least) * u); });
      case Init::Kind::zeros:
      case Init::Kind::ones:
        return cpu::run(Fill{.x = values, .value = init.kind == Init::Kind::ones ? 1.0 : 0.0});
    }
  });
}

}  // namespace nought
