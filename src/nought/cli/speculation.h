// What --speculative names: how tokens are guessed for a loaded model.
#pragma once

#include "nought/cli/generation.h"

namespace nought {

/// The drafter of these options; none without --speculative. cache: as large as that of the model. A model that guesses
/// is loaded whole on the rank that asks for it. ConfigError if it has another vocabulary.
Speculation make_speculation(const GenerationOptions& options, const LoadedModel& model, const CacheOptions& cache);

}  // namespace nought
