// Trait: what a run does that not every way of training bears. Which runs do it is said here, once; each way of
// training says which traits it refuses, and why.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string_view>

#include "nought/config/run_plan.h"

namespace nought {

enum class Trait : uint8_t {
  splits_model,         // ranks share matrices, layers or sequences
  splits_experts,       // ranks hold different experts
  replicates,           // there are several copies of what is sharded
  gathers_by_hosts,     // parameters travel in two hops, as they are
  talks_to_ranks,       // an update takes all ranks
  updates_locally,      // the weights of ranks differ between two synchronizations
  makes_local_steps,    // replicas are workers
  delays_updates,       // by one step
  offloads_states,      // masters and optimizer states leave the device
  states_in_files,      // they go as far as that
  parameters_in_files,  // so do parameters
  files_alone,          // and none of them stays in memory
  updates_weights,      // 16-bit weights have no masters
  narrow_states,        // there are no masters, or states of 16 bits
  moves_betas,          // the scheduler does
  clips_gradients,      // to a norm
  scales_loss,          // fp16
  skips_nonfinite,      // steps that are not finite
  repeats_spikes,       // steps whose loss jumps
  narrow_wire,          // gradients travel in another dtype than they are summed in
  error_feedback,       // what quantized gradients lose is sent later
  fp8,                  // products are of values of 8 bits
  compares_times,       // ranks tell each other how long they took
  compares_weights,     // replicas tell each other what they hold
  keeps_best            // the best checkpoint is exported
};
bool has(const RunPlan& plan, Trait trait);

/// A trait that a way of training refuses, and its words for that.
struct Refusal {
  Trait trait;
  std::string_view what, instead = {};
};
/// The first of them that the plan has.
std::optional<Refusal> first_refused(const RunPlan& plan, std::initializer_list<Refusal> refusals);

}  // namespace nought
