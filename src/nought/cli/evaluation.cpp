#include "nought/cli/evaluation.h"

#include <algorithm>
#include <utility>

#include "nought/base/json.h"
#include "nought/cli/device.h"
#include "nought/cli/flight.h"
#include "nought/config/run_config.h"
#include "nought/data/corpus_kind.h"
#include "nought/data/token_folder.h"
#include "nought/engine/model_schedule.h"
#include "nought/engine/pipeline_cut.h"
#include "nought/io/text_file.h"
#include "nought/train/validate_run.h"
#include "nought/weights/model_source.h"

namespace nought {

namespace {

constexpr int64_t kLongestDefault = 2048;  // tokens per sequence of models that would take more

/// Whether the first record of the data is a pair of answers.
bool holds_pairs(const Json& run) {
  const Json files = run["data"].value("files", Json());
  if (!files.is_array() || files.empty() || !files.front().is_string()) return false;
  const std::vector<std::string> patterns{files.front().get<std::string>()};
  const std::vector<std::filesystem::path> found = expand_data_files(patterns);
  return !found.empty() && begins_with_pair(TextBeginning(found.front()).text());
}

/// Says what is evaluated of a classifier, unless the run does.
void name_method(const std::string& folder, Json& run) {
  const ModelConfig config = ModelConfig::from_folder(folder);
  if (run.contains("alignment") || !config.classifier) return;
  run["alignment"] = {{"method", holds_pairs(run) ? "reward" : "classify"}};
  if (!run["data"].contains("seq_length")) run["data"]["seq_length"] = std::min(config.max_positions, kLongestDefault);
}

}  // namespace

RunPlan EvalOptions::plan(int world_size) const {
  std::vector<std::string> warnings;
  Json run = run_file.empty() ? Json::object() : read_run_file(run_file, warnings);
  require<ConfigError>(run.is_object(), "{}: expected an object, found {}", run_file, describe_json(run));
  const std::string folder = model_found ? model_dir : find_model(model_dir, adapters).folder.string();
  const bool own_tokenizer = tokenizer.empty() && holds_tokenizer(folder);
  run["model"] = folder;
  Json& data = run["data"];
  if (data.is_null()) data = Json::object();
  if (!files.empty()) data.erase("sources"), data.erase("validation_fraction"), data.erase("validation_files");
  if (!files.empty()) data["files"] = files;
  if (!files.empty() && run.contains("training"))  // what would need the run's validation data
    run["training"].erase("eval_strategy"), run["training"].erase("load_best_model_at_end");
  if (!tokenizer.empty() || own_tokenizer) data["tokenizer"] = own_tokenizer ? folder : tokenizer;
  if (!own_tokenizer && !data.contains("tokenizer")) data["tokenizer"] = "bytes";
  if (seq_length) data["seq_length"] = *seq_length;
  if (batch_size) run["training"]["per_device_eval_batch_size"] = *batch_size;
  name_method(folder, run);
  RunPlan plan = resolve(make_run_config(run, run_file.empty() ? "the command line" : run_file, overrides, warnings,
                                         names_gpu(launch.device)),
                         world_size);
  require<ConfigError>(!plan.alignment.distillation,
                       "alignment.method = gkd: only a run has a teacher to compare with, whose validations have "
                       "eval_loss: leave out the RUN.json, and name the data with --data");
  plan.model_found = true;
  plan.alignment.without_labels = without_labels;
  require<ConfigError>(!plan.data.sources.empty(), "no data to evaluate with: --data FILE, or a RUN.json that has it");
  if (plan.layout.seq_length != 0) return with_length_of(plan, model_config_of(plan));
  plan.layout.seq_length = std::min(model_config_of(plan).max_positions, kLongestDefault);
  return plan;
}

std::vector<std::string> validate_eval(const EvalOptions& options, int ranks) {
  const RunPlan plan = options.plan(ranks);
  const ModelConfig config = model_config_of(plan);
  if (!options.model_found)
    require_positions(plan, ModelSource(find_model(options.model_dir, options.adapters)).model());
  const auto tokenizer = tokenizer_of(plan.data);
  tokenizer->check_fits(config.vocab_size);
  look_at_data(plan, *tokenizer, ValidateOptions().text_bytes);
  std::vector<std::string> notes = notes_on_inputs(plan, config, *tokenizer);
  if (!holds_tokenizer(plan.model_dir)) {
    if (options.tokenizer.empty() && plan.data.tokenizer == "bytes")
      notes.push_back(fmt::format("{} holds no tokenizer: every byte is a token (\"bytes\")", plan.model_dir));
  } else if (plan.data.tokenizer != plan.model_dir &&
             make_tokenizer(plan.model_dir)->fingerprint() != tokenizer->fingerprint()) {
    notes.push_back(fmt::format("\"{}\" is another tokenizer than that of {}", tokenizer->name(), plan.model_dir));
  }
  return notes;
}

EvaluatedModel::EvaluatedModel(EvalOptions options, Communicator& world, const Context& context)
    : found_(find_model(options.model_dir, options.adapters, world, context)),
      plan_([&] {
        say_choice(found_.choice);
        options.model_dir = found_.folder.string(), options.model_found = true;
        return options.plan(world.size());
      }()),
      mesh_(world, plan_.layout.grid()),
      tokenizer_(tokenizer_of(plan_.data)) {
  watch_calls(world, plan_);
  if (world.rank() == 0)
    for (const std::string& note : validate_eval(options, world.size())) fmt::print(stderr, "note: {}\n", note);
  world.barrier().wait();
  const ModelSource source(found_);
  require_positions(plan_, source.model());
  ModelConfig config = model_config_of(plan_);
  config.adapter = source.config().adapter;
  config.tie_word_embeddings = source.config().tie_word_embeddings;
  decoder_ = std::make_unique<Decoder>(
      config, RecomputeOptions(), Fp8Options(),
      ModelRanks(mesh_, plan_.layout.sequence_parallel, pipeline_cut_of(plan_, config), plan_.layout.context_method));
  if (options.kv_dtype) decoder_->evaluate_as_cached(*options.kv_dtype);
  ShardedModel::Options sharding = plan_.layout.sharding_options();
  sharding.training = false;
  const Context kernels =
      options.rounds_inputs ? context_for(Activations::int8, keep_stored_codes(source, *decoder_), context) : context;
  model_ = std::make_unique<ShardedModel>(kernels, mesh_, *decoder_, sharding);
  model_->load(source.weights());
  engine_ = std::make_unique<Engine>(*model_);
  engine_->set_schedule(schedule_at(mesh_, plan_.layout.pipeline));
  data_.emplace(open_data(plan_, *tokenizer_));
  const auto all = std::exchange(data_->pairs, nullptr);  // nothing is trained
  if (all && !data_->validation_pairs) data_->validation_pairs = all;
}

BatchLayout EvaluatedModel::layout() const {
  const Communicator& ranks = mesh_.group(Group::samples);
  return {.micro_batch = plan_.layout.evaluation_rows,
          .accumulation = 1,
          .world_size = ranks.size(),
          .rank = ranks.rank(),
          .together = plan_.layout.read_together()};
}

void add_eval_options(CLI::App& command, EvalOptions& options) {
  command
      .add_option("--data", options.files, "Files to evaluate on, as data.files of a run; they replace the run's data")
      ->type_name("FILE")
      ->expected(1)
      ->allow_extra_args(false)
      ->take_all();
  command
      .add_option("--tokenizer", options.tokenizer,
                  "The tokenizer, as data.tokenizer of a run; default: the folder's own, else bytes")
      ->type_name("NAME");
  command
      .add_option("--seq-length", options.seq_length,
                  fmt::format("Tokens per sequence; default: the model's, at most {}", kLongestDefault))
      ->type_name("N");
  command.add_option("--batch-size", options.batch_size, "Sequences per rank and forward pass")->type_name("N");
  add_adapter_options(command, options.adapters);
  add_override_option(command, options.overrides, "training.bf16=true");
  add_launch_options(command, options.launch);
  add_device_option(command, options.launch);
}

}  // namespace nought
