// The sections of the report page that are tables and texts.
#pragma once

#include <span>
#include <string>

#include "nought/report/run_folder.h"

namespace nought {

// Each is HTML with a heading, or "" if no run has anything to tell.

/// What the run is in a sentence, and tiles: where it stands, loss, speed.
std::string summary_section(const RunFolder& run);
/// What went wrong, each with a link to its step in the curves.
std::string events_section(std::span<const RunFolder> runs);
/// The settings in which several runs differ, and their figures beside each other; "" for one run.
std::string differences_section(std::span<const RunFolder> runs);
/// The numbers of up to 40 steps of each run, as metrics.jsonl has them.
std::string steps_section(std::span<const RunFolder> runs);
/// Memory by category and rank, predicted beside measured, with a bar for each.
std::string memory_section(std::span<const RunFolder> runs);
/// What a rank sends in a step, by axes and collective as predicted, beside what was counted; where a step's time goes.
std::string traffic_section(std::span<const RunFolder> runs);
std::string times_section(std::span<const RunFolder> runs);
/// How the model continued the prompts.
std::string samples_section(std::span<const RunFolder> runs);
/// What was set, every resolved value with its reason, the machine, the versions and the command to repeat the run.
std::string settings_section(const RunFolder& run);

}  // namespace nought
