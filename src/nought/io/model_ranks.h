// Joins what tensor parallel ranks saved: of each tensor every rank has a slice along one dimension, or the whole.
//
// Design goals: how a tensor was cut follows from its whole shape; what does not follow is refused by its name. Slices
// are read where they lie.
// Non-goals: tables of patterns, by which ds_to_universal.py joins; tensors that are a mean over ranks.
#pragma once

#include <span>

#include "nought/io/foreign_run.h"

namespace nought {

/// The runs of all tensor parallel ranks as one. A tensor of which nobody can tell how it was cut is not read, and says
/// why when it is asked for. IoError if the ranks are of different steps, or hold different tensors.
ForeignRun join_model_ranks(std::span<const ForeignRun> ranks, const WholeShapes& shapes);

}  // namespace nought
