// nought plan --elastic: every number of ranks that a run can have, and what each rank needs then.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "nought/config/elastic_ranks.h"
#include "nought/config/run_plan.h"

namespace nought {

/// Prints a row for each number: micro-batch, accumulation, memory of a rank, and whether it fits the run's budgets;
/// without any, whether the ranks of a run on one host fit this machine's memory. json: one object.
/// plan_of(choice): the run as it is planned for that number.
void print_elastic(const ElasticRanks& ranks, const std::function<RunPlan(const ElasticRanks::Choice&)>& plan_of,
                   bool json);

}  // namespace nought
