// ForeignRun: a run that another program trained, as its checkpoint has it: weights, what the optimizer keeps of each,
// and how many steps were made.
//
// Non-goals: schedules of rates, places in data and random numbers, which mean something to their own program only.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "nought/io/tensor_pieces.h"
#include "nought/io/whole_shapes.h"

namespace nought {

/// The state of a dynamic loss scale, which is counted in steps.
struct ForeignLossScale {
  double scale = 1;
  int64_t steps = 0, last_overflow = -1, hysteresis = 1;
};

/// What Adam was told of one group of parameters, as far as the checkpoint says.
struct ForeignGroup {
  std::optional<double> beta1 = {}, beta2 = {}, eps = {}, weight_decay = {};
  std::optional<bool> decoupled = {};  // the decay: AdamW

  bool operator==(const ForeignGroup&) const = default;
};

struct ForeignRun {
  explicit ForeignRun(std::filesystem::path folder) : weights(std::move(folder)) {}

  TensorPieces weights;                                         // fp32 masters where there are any
  std::map<std::string, TensorPieces> states = {};              // "exp_avg" -> by the names of the weights
  std::map<std::string, Shape, std::less<>> whole_shapes = {};  // what ranks have slices of, if it says so
  std::map<std::string, std::string> second_names = {};         // a tied weight's other names -> its first
  std::string writer = {};                                      // "DeepSpeed 0.19.8, ZeRO stage 2 on 2 ranks"
  std::string optimizer = {};             // the type that its configuration names; "" where it names none
  std::vector<ForeignGroup> groups = {};  // the optimizer's settings for groups of parameters, none twice
  int64_t updates = 0, skipped = 0;       // updates of the optimizer, and steps without one
  std::optional<ForeignLossScale> loss_scale = {};
  bool scheduled = false;  // it has the state of a schedule

  /// The tensors of one state, in the files that are open by now.
  TensorPieces& table(const std::string& state) {
    return states.try_emplace(state, weights.without_tensors()).first->second;
  }
};

/// Whether a folder is a checkpoint of DeepSpeed or of torch.distributed.checkpoint.
bool holds_foreign_run(const std::filesystem::path& folder);
/// What is missing where a folder holds some files of such a checkpoint, and is none; "" where nothing tells of one.
std::string describe_part_of_foreign_run(const std::filesystem::path& folder);
/// shapes: without it, nobody can tell how tensor parallel ranks cut tensors, and these are not read. IoError.
ForeignRun read_foreign_run(const std::filesystem::path& folder, const WholeShapes& shapes = {});

}  // namespace nought
