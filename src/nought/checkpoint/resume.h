// Where a run that continues begins, and which checkpoints do not belong to it.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "nought/config/run_plan.h"

namespace nought {

/// The checkpoint that plan.resume_from means: "" is the last one in output_dir, a number the one of that step in
/// output_dir, anything else a checkpoint, also one of another program (io/foreign_run.h), or a folder whose last one
/// it is. IoError if it is not there.
std::filesystem::path resume_point(const RunPlan& plan);

/// Tells that checkpoints behind `point` in its folder are not complete, so that the run goes back to it; "" if there
/// are none.
std::string describe_incomplete_after(const std::filesystem::path& point);

/// Whether a checkpoint lies in that folder.
bool lies_in(const std::filesystem::path& checkpoint, const std::filesystem::path& folder);

/// The checkpoints in `output_dir` that are none of a run which continues `point`: later ones, and all of them if the
/// point lies elsewhere.
std::vector<std::filesystem::path> checkpoints_of_others(const std::filesystem::path& point,
                                                         const std::filesystem::path& output_dir);

/// Removes those, or, if they are to be kept, moves them to the first folder rewound-N of `output_dir` that is free.
/// Returns a line that says where they are, or "". IoError.
std::string leave_others(const std::filesystem::path& point, const std::filesystem::path& output_dir, bool keep);

}  // namespace nought
