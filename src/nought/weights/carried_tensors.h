// CarriedTensors: what a Hugging Face folder holds beside the model that is read of it, for exports that carry it
// through, byte for byte: towers for images, layers that predict later tokens.
#pragma once

#include <filesystem>
#include <string>
#include <unordered_map>
#include <vector>

#include "nought/io/safetensors_writer.h"
#include "nought/models/hf_folder_writer.h"
#include "nought/models/weight_files.h"

namespace nought {

/// Where the files of a folder have a parameter: its elements are those of a tensor from `first` on.
struct StoredPlace {
  std::string tensor;
  int64_t first = 0;
};

class CarriedTensors {
 public:
  /// stored: where the files have parameters.
  CarriedTensors(const WeightFiles& files, std::filesystem::path folder, std::vector<std::string> names,
                 std::unordered_map<std::string, StoredPlace> stored)
      : files_(files), folder_(std::move(folder)), names_(std::move(names)), stored_(std::move(stored)) {}

  /// Where the folder has a parameter; its own name for one that it has not.
  StoredPlace place_of(const std::string& parameter) const;
  /// Makes the specs of parameters those of the folder's tensors, and adds those of what is carried.
  void add_to(std::vector<TensorSpec>& specs) const;
  void write(HfFolderWriter& writer, Memory& memory) const;
  /// Copies the files that say how images become input.
  void copy_companions(const std::filesystem::path& folder) const;
  /// "12 tensors (vision_tower, ...)".
  std::string describe() const;

 private:
  const WeightFiles& files_;
  std::filesystem::path folder_;
  std::vector<std::string> names_;
  std::unordered_map<std::string, StoredPlace> stored_;
};

}  // namespace nought
