#include "nought/zero/state.h"

#include "nought/tensor/random.h"

namespace nought {

void InitialState::fill(StateKind kind, const Parameter& parameter, Interval interval,
                        const Tensor& destination) const {
  const uint64_t key = stable_hash(parameter.name, seed_);
  const auto value_at = [&](int64_t index) -> float {
    if (kind != StateKind::master) return 0;
    switch (parameter.init.kind) {
      case Init::Kind::zeros:
        return 0;
      case Init::Kind::ones:
        return 1;
      case Init::Kind::normal:
        return static_cast<float>(parameter.init.std * normal_at(key, static_cast<uint64_t>(index)));
    }
    return 0;
  };
  visit_float(destination.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* out = destination.data<T>();
    for (int64_t i = interval.begin; i < interval.end; ++i) out[i - interval.begin] = T(value_at(i));
  });
}

}  // namespace nought
