#include "nought/zero/state.h"

#include "nought/kernels/cpu/cpu.h"
#include "nought/kernels/normal.h"
#include "nought/tensor/random.h"

namespace nought {

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
  const bool is_normal = kind == StateKind::master && parameter.init.kind == Init::Kind::normal;
  const bool is_one = kind == StateKind::master && parameter.init.kind == Init::Kind::ones;
  for_each_interval(elements, destination, [&](Interval interval, const Tensor& values) {
    if (is_normal) return fill_normal(values, stable_hash(parameter.name, seed_), interval.begin, parameter.init.std);
    cpu::run(Fill{.x = values, .value = is_one ? 1.0 : 0.0});
  });
}

}  // namespace nought
