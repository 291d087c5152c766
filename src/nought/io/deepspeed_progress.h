// What DeepSpeed says of a run beside its tensors: steps, the states of its optimizer by their names, its loss scale.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "nought/io/deepspeed_archive.h"
#include "nought/io/foreign_run.h"

namespace nought {

inline constexpr std::string_view kStep = "step";

/// The states that the optimizer keeps of a flat tensor, in the order in which they lie; the step goes to run.updates
/// instead. Empty without any. IoError.
std::vector<std::string> read_states(const DeepSpeedArchive& rank, size_t flat, ForeignRun& run);
/// One of them. IoError if this rank has it not.
const PickleValue& state_of(const DeepSpeedArchive& rank, size_t flat, const std::string& state);
/// The optimizer has made so many updates. IoError if other files say otherwise.
void note_step(const DeepSpeedArchive& opened, const PickleValue& step, ForeignRun& run);
/// Betas, eps and decay of an optimizer's groups of parameters.
void read_groups(const DeepSpeedArchive& opened, const PickleValue& optimizer, ForeignRun& run);
/// The whole shapes that DeepSpeed's AutoTP notes of what it cuts.
void read_whole_shapes(const DeepSpeedArchive& model, ForeignRun& run);
/// Steps, versions and options, as the states of the model have them. Call it after the states were read.
void read_progress(const DeepSpeedArchive& model, ForeignRun& run);
void read_loss_scale(const DeepSpeedArchive& optimizer, const PickleValue& state, ForeignRun& run);

}  // namespace nought
