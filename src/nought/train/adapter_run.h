// AdapterRun: what a run that trains an adapter has beside its model: the weights that the adapter adds to, which are
// in no checkpoint, and how the adapter begins, is saved and exported.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "nought/checkpoint/checkpoint.h"
#include "nought/text/tokenizer_export.h"
#include "nought/weights/adapter_starts.h"
#include "nought/weights/model_source.h"

namespace nought {

/// What it adds to the model of this config, which has none yet. ConfigError.
ModelAdapter adapter_of(const RunPlan& plan, const ModelConfig& config);

/// The values that an adapter begins with, where it begins anew, and those of its base.
class AdapterStartValues final : public StateSource {
 public:
  /// config: of the base. model: with the adapter. started: what the base begins with, if that is not `base`.
  AdapterStartValues(uint64_t seed, const ModelConfig& config, const Model& model, const ModelAdapter& adapter,
                     const StateSource& base, const StartedBase* started = nullptr);
  using StateSource::fill;
  void fill(StateKind kind, const Parameter& parameter, std::span<const Interval> elements,
            const Tensor& destination) const override;
  std::optional<StoredFourBits> four_bits(const Parameter& parameter) const override {
    return started_ == nullptr ? base_.four_bits(parameter) : std::nullopt;
  }

 private:
  Tensor whole(const StateSource& source, const std::string& name) const;
  /// A or B of a start that is made of the weight, or of each other; undefined for other starts.
  Tensor made_factor(const std::string& parameter) const;
  /// The norms of the outputs of what the layer begins with.
  Tensor magnitudes(std::string_view layer) const;
  /// The rows that the model has of the tokens whose rows are trained.
  Tensor rows_of_tokens(const std::string& layer) const;

  const uint64_t seed_;
  InitialState start_;
  const StateSource& base_;
  const StartedBase* started_;
  WeightLayout layout_;
  const ModelAdapter& adapter_;
  std::map<std::string, const Parameter*> parameters_;
  Context context_;
};

class AdapterRun {
 public:
  /// plan: its model_dir was found. Reads the headers of the base's files, and all of it on rank 0, for its hash.
  /// Collective.
  AdapterRun(const RunPlan& plan, Communicator& world, const Context& context);

  /// The values of a run that begins. Returns a line that says where they are from.
  std::string begin(ShardedModel& model) const;
  /// Gives a checkpoint the base that it lacks. ConfigError if it is of another one.
  void take_up(Checkpoint& checkpoint) const;
  /// For checkpoints.
  BaseInfo base_info() const { return {base_.folder().string(), hash_}; }
  /// Writes adapter_config.json, as the adapter's own folder has it.
  void write_config(const std::filesystem::path& folder) const;
  /// Writes the folder of the adapter, as peft does, in the parameters' dtype, with the tokenizer. Collective.
  void export_to(ShardedModel& model, const TokenizerExport& tokenizer, const std::filesystem::path& folder) const;

 private:
  const StateSource& weights() const { return started_ ? static_cast<const StateSource&>(*started_) : base_.weights(); }
  /// Writes what the file has of a parameter: with a start that the base lacks, the difference to it.
  void write_tensor(const Parameter& parameter, const Tensor& values, SafetensorsWriter& writer, Memory& memory,
                    const Model& model) const;

  const uint64_t seed_;
  const std::string from_;  // the folder of the adapter that it goes on from; "" = none
  ModelSource base_;
  ModelAdapter adapter_;
  AdapterConfig config_;
  std::string hash_;
  std::unique_ptr<StartedBase> started_;  // null: the base begins as it is
};

}  // namespace nought
