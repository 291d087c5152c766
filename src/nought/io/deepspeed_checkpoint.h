// Reads the weights of a checkpoint that DeepSpeed wrote, and the states of its optimizer: the folder that `latest`
// names, as ZeRO's ranks (stages 0 to 3) or as ds_to_universal.py left it.
//
// Design goals: the fp32 masters are the weights, as zero_to_fp32.py has it; they are read where they lie. What is
// missing is said by its file.
// Non-goals: experts and stages of pipelines, whose merging ds_to_universal.py does.
#pragma once

#include <filesystem>
#include <span>
#include <string_view>

#include "nought/io/foreign_run.h"
#include "nought/io/tensor_pieces.h"

namespace nought {

/// Whether a folder is the save_dir of a DeepSpeed engine, or one of the steps in it.
bool holds_deepspeed_checkpoint(const std::filesystem::path& folder);

/// What stands beside the tensors in its archives: globals that are known, and of which nothing is run.
std::span<const std::string_view> deepspeed_globals();

/// Weights and buffers by the names of the module. shapes: tell how tensor parallel ranks cut them. IoError.
TensorPieces read_deepspeed_checkpoint(const std::filesystem::path& folder, const WholeShapes& shapes = {});
/// Weights with what the optimizer keeps of them, and the steps that were made. IoError.
ForeignRun read_deepspeed_run(const std::filesystem::path& folder, const WholeShapes& shapes = {});

}  // namespace nought
