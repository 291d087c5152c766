// Reads the weights of a folder that torch.distributed.checkpoint (DCP) wrote, as FSDP2 saves: .metadata says where the
// chunks of each tensor lie in the files of the ranks, __R_N.distcp.
//
// Non-goals: what is no weight, as an optimizer's states.
#pragma once

#include <filesystem>

#include "nought/io/tensor_pieces.h"

namespace nought {

/// Whether a folder has a .metadata, or the pytorch_model_fsdp_0 of accelerate and transformers with one.
bool holds_dcp(const std::filesystem::path& folder);

/// The weights by their names in the state dict of the model, wherever that lies in what was saved. IoError.
TensorPieces read_dcp(const std::filesystem::path& folder);

}  // namespace nought
