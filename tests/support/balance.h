// The loss that balances experts, from what routers have logged.
#pragma once

#include "nought/autograd/moe.h"

namespace nought::test {

/// The balance of all ranks' logs and its gradient. weight: what this rank's batch counts in the mean. Collective.
inline BalanceLoss balance_of(const Context& context, const RouterLog& log, double weight, Communicator& ranks) {
  const Tensor sums = log.sums(context, weight, ranks);
  const BalanceLoss op{.sums = sums,
                       .loss = context.empty({1}, DType::f64),
                       .gradient = context.empty({(sums.numel() - 2) / 2}, DType::f64)};
  context.run(op);
  return op;
}

/// The balance loss of the log of one rank alone.
inline BalanceLoss balance_of(const Context& context, const RouterLog& log) {
  return balance_of(context, log, 1, *make_self_communicator());
}

}  // namespace nought::test
