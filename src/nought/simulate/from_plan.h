// A RunPlan as simulate_step() takes it.
#pragma once

#include "nought/config/run_plan.h"
#include "nought/simulate/run.h"

namespace nought {

struct ModelConfig;

/// Whose overlap and kernels a simulation assumes where nobody says.
inline constexpr const char* kSimulatedSoftware = "megatron-core";

/// The run's model, layout and batch, trained by `software`. ConfigError, in one line, for what a simulation has no
/// formula of: local steps, asynchronous updates, adapters, layers that do not attend.
SimulatedRun simulated_run(const ModelConfig& config, const Layout& layout, const Software& software);

}  // namespace nought
