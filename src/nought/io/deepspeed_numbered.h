// Reads what the optimizer of a DeepSpeed run without ZeRO keeps: torch's own dict, which numbers parameters. Their
// names are those of the module, in its order.
//
// Design goals: a number gets a name only if every shape agrees.
// Non-goals: groups of parameters other than one of all, or one of matrices and one of vectors, unless the optimizer
// tells the names itself.
#pragma once

#include "nought/io/deepspeed_archive.h"
#include "nought/io/foreign_run.h"

namespace nought {

/// Adds fp32 masters where it has any, moments, step, groups and loss scale. IoError if its numbers fit no names.
void read_numbered_states(const DeepSpeedArchive& model, ForeignRun& run);

}  // namespace nought
