// The folders checkpoint-STEP of a run: which there are, which are complete, and how they go.
//
// A checkpoint is complete if it has a manifest, and it loses that first when it is removed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace nought {

/// The path of the checkpoint of a step in `folder`, and the step in such a name, or nothing.
std::filesystem::path checkpoint_path(const std::filesystem::path& folder, int64_t step);
std::optional<int64_t> checkpoint_step(const std::filesystem::path& path);
/// True for a complete checkpoint-STEP folder.
bool is_checkpoint(const std::filesystem::path& path);

/// The complete checkpoint-STEP folders in `folder`, ascending by step.
std::vector<std::filesystem::path> list_checkpoints(const std::filesystem::path& folder);
/// The checkpoint-STEP folders without a manifest, ascending by step. No save leaves any, but a disk that failed or a
/// person may. Checkpoints of other programs are none of them.
std::vector<std::filesystem::path> incomplete_checkpoints(const std::filesystem::path& folder);
/// The last complete one. IoError if there is none.
std::filesystem::path last_checkpoint(const std::filesystem::path& folder);

/// Removes a checkpoint, so that nobody takes what is left of it for one if this is cut. IoError.
void remove_checkpoint(const std::filesystem::path& path);
/// Removes all but the last `keep` checkpoints; 0: removes none. `best` stays, too: it counts as the last but one, so
/// there are two at least if it is not the last. A checkpoint whose manifest is damaged or is that of another step than
/// its name says is neither counted nor removed. Call it on one rank.
void remove_old_checkpoints(const std::filesystem::path& folder, int64_t keep, const std::filesystem::path& best = {});

/// Tidies up after runs that were killed in `folder`: removes what was not yet published or already replaced, and
/// checkpoints before the last one that have lost their manifest; and gives a checkpoint its name back that a save had
/// moved aside. No other process may write to the folder. Returns a line for the user about each kind.
std::vector<std::string> remove_debris(const std::filesystem::path& folder);

}  // namespace nought
