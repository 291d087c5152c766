// Finds the files of a step that DeepSpeed saved, by their names.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace nought {

/// "bf16_zero_pp_rank_3_mp_rank_00_optim_states.pt" and the like: states of a data parallel and a model parallel rank.
struct DeepSpeedFile {
  std::filesystem::path path;
  bool optimizer = false, of_rank = false;  // of_rank: each data parallel rank has one
  int64_t rank = 0, model_rank = 0;
};

/// By model parallel rank and then by rank. Empty if there are none.
std::vector<DeepSpeedFile> deepspeed_files(const std::filesystem::path& folder);
/// The folder of the step to read in the save_dir of an engine, or in a step's own folder: what `latest` names, or
/// `latest_universal`. It need not be there. "" if nothing tells of DeepSpeed.
std::filesystem::path deepspeed_step(const std::filesystem::path& folder);

}  // namespace nought
