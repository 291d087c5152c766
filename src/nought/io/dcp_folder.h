// Reads the weights of a folder that torch.distributed.checkpoint (DCP) wrote, as FSDP2 saves: .metadata says where the
// chunks of each tensor lie in the files of the ranks, __R_N.distcp.
//
// What is neither a weight nor a state of an optimizer is left.
#pragma once

#include <filesystem>

#include "nought/io/foreign_run.h"
#include "nought/io/tensor_pieces.h"

namespace nought {

/// Whether a folder has a .metadata, or the pytorch_model_fsdp_0 of accelerate and transformers with one.
bool holds_dcp(const std::filesystem::path& folder);

/// The weights by their names in the state dict of the model, wherever that lies in what was saved. IoError.
TensorPieces read_dcp(const std::filesystem::path& folder);
/// Weights with what the optimizer keeps of them: in the same state dict, or in optimizer_0 as accelerate writes it.
/// IoError.
ForeignRun read_dcp_run(const std::filesystem::path& folder);

}  // namespace nought
