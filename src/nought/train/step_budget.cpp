#include "nought/train/step_budget.h"

#include <algorithm>

#include "nought/base/error.h"
#include "nought/base/text.h"

namespace nought {

StepChoice choose_steps(const StepBudget& budget, const Samples& measured) {
  require<ConfigError>(1 <= budget.fewest && budget.fewest <= budget.most,
                       "the fewest steps of a run, {}, must be 1 to {}, the most", budget.fewest, budget.most);
  const double step = measured.median(), all = step * static_cast<double>(budget.most);
  const auto tokens = static_cast<double>(budget.tokens_per_step);
  const std::string limit = format_duration(budget.seconds);
  const std::string pace = fmt::format("a step takes {:.3g} s ({}), the median of {} before the run", step,
                                       format_token_rate(tokens / step), measured.values.size());
  if (all <= budget.seconds)
    return {budget.most, fmt::format("all {} steps, about {}, as {} is enough for them: {}", budget.most,
                                     format_duration(all), limit, pace)};
  const auto fit = static_cast<int64_t>(budget.seconds / step);  // < most
  if (fit < budget.fewest)
    return {budget.fewest,
            fmt::format("{} of {} steps, the fewest allowed, about {}, as only {} fit into {}: {}", budget.fewest,
                        budget.most, format_duration(step * static_cast<double>(budget.fewest)), fit, limit, pace)};
  return {fit, fmt::format("{} of {} steps, as so many fit into {} and all would take {}: {}", fit, budget.most, limit,
                           format_duration(all), pace)};
}

}  // namespace nought
