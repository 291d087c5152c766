// ExportRecord: what a run says of the weights that it exported, in trainer_state.json beside them.
//
// Without it nobody could tell whether weights in an output folder are newer than the checkpoints there: files that are
// copied have new times. The keys that Hugging Face's trainer_state.json has, too, have its names.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "nought/checkpoint/best_model.h"

namespace nought {

struct ExportRecord {
  int64_t step = 0;                    // steps that the run had made
  std::optional<BestModel> best = {};  // given: the weights are those of this checkpoint
  std::string written_by = {};         // the program's version
  std::string receipt = {};            // hash of the last line of the run's receipt; "": it has none
  std::string written_at = {};         // see utc_now(); write_export_record() sets it
};

/// Writes FOLDER/trainer_state.json. IoError.
void write_export_record(const ExportRecord& record, const std::filesystem::path& folder);
/// Reads it; nothing if there is none, or if another program wrote it. IoError if it is newer than this program.
std::optional<ExportRecord> read_export_record(const std::filesystem::path& folder);

/// The time: "2026-11-22T15:27:52.123Z". Of two such texts the later time is the greater one.
std::string utc_now();

}  // namespace nought
