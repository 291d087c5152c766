// The tensors of a file that torch.save() wrote: a ZIP archive with a pickle that describes them, and their bytes.
//
// Design goals: tensors are found where they lie, and nothing is copied; the pickle is data, and nothing of it is run.
// Non-goals: files of torch before 1.6, which are no archives; tensors whose elements are not in their order.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "nought/io/safetensors.h"

namespace nought {

/// Whether a file begins as a ZIP archive does.
bool is_torch_archive(std::span<const std::byte> bytes);
/// Whether a file begins with the number that torch wrote before 1.6, in a pickle that is no archive.
bool is_old_torch_file(std::span<const std::byte> bytes);

struct TorchTensors {
  std::vector<TensorEntry> entries = {};                              // bytes: within the file
  std::vector<std::pair<std::string, std::string>> unsupported = {};  // name, dtype
};
/// The tensors of a state dict. Those of dicts within it are named with dots: "module.weight"; what is no tensor is
/// left out. IoError, which names `source`.
TorchTensors read_torch_archive(std::span<const std::byte> bytes, const std::string& source);

}  // namespace nought
