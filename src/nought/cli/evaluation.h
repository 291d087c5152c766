// What `nought eval` and `nought score` share: their options, the run that these mean, and the model that is asked.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "nought/cli/generation.h"
#include "nought/cli/launch.h"
#include "nought/config/run_plan.h"
#include "nought/engine/engine.h"
#include "nought/train/run_data.h"

namespace nought {

struct EvalOptions {
  std::string model_dir, run_file, tokenizer;
  bool model_found = false;     // see RunPlan
  bool without_labels = false;  // texts for a classifier need no label
  std::vector<std::string> files, overrides;
  AdapterFlags adapters;
  std::optional<int64_t> seq_length, batch_size;
  std::optional<DType> kv_dtype;  // keys and values are rounded as in a cache of this dtype
  bool rounds_inputs = false;     // weights are kept as codes, and inputs rounded where they meet them
  LaunchOptions launch;

  /// The run of RUN.json, or an empty one, of this model and these files. A classifier's scores are evaluated by the
  /// method `reward` where the data are pairs of answers, else by `classify`.
  RunPlan plan(int world_size) const;
};
/// Adds --data, --tokenizer, --seq-length, --batch-size, and the options of models and launches.
void add_eval_options(CLI::App& command, EvalOptions& options);
/// Throws what would stop the evaluation. Returns lines for the user.
std::vector<std::string> validate_eval(const EvalOptions& options, int ranks);

/// The model of MODEL_DIR on the ranks of a plan, with its data.
class EvaluatedModel {
 public:
  /// Collective. Rank 0 says on stderr which folder was chosen, and what validate_eval() returns.
  EvaluatedModel(EvalOptions options, Communicator& world, const Context& context);

  const RunPlan& plan() const { return plan_; }
  const Tokenizer& tokenizer() const { return *tokenizer_; }
  /// Judged answers or texts are its `validation_pairs`.
  const RunData& data() const { return *data_; }
  Engine& engine() { return *engine_; }
  ShardedModel& model() { return *model_; }
  Decoder& decoder() { return *decoder_; }
  /// The places of rows on these ranks.
  BatchLayout layout() const;

 private:
  FoundModel found_;
  RunPlan plan_;
  Mesh mesh_;
  std::unique_ptr<Decoder> decoder_;
  std::unique_ptr<ShardedModel> model_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::optional<RunData> data_;
};

}  // namespace nought
