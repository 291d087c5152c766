// nought eval: how well a model predicts some text: loss, perplexity, bits per byte.
#include <memory>
#include <utility>

#include "nought/base/json.h"
#include "nought/base/text.h"
#include "nought/cli/commands.h"
#include "nought/cli/device.h"
#include "nought/cli/flight.h"
#include "nought/cli/generation.h"
#include "nought/cli/launch.h"
#include "nought/comm/flight_timeout.h"
#include "nought/config/run_config.h"
#include "nought/engine/evaluation.h"
#include "nought/engine/model_schedule.h"
#include "nought/engine/pipeline_cut.h"
#include "nought/io/file_format.h"
#include "nought/observe/progress.h"
#include "nought/train/validate_run.h"
#include "nought/weights/model_source.h"

namespace nought {

namespace {

constexpr int64_t kLongestDefault = 2048;  // tokens per sequence of models that would take more
constexpr FileFormat kEvaluationFormat{"nought-evaluation", 1};

struct EvalOptions {
  std::string model_dir, run_file, tokenizer;
  bool model_found = false;  // see RunPlan
  std::vector<std::string> files, overrides;
  AdapterFlags adapters;
  std::optional<int64_t> seq_length, batch_size;
  LaunchOptions launch;
  bool json = false;

  /// The run of RUN.json, or an empty one, of this model and these files.
  RunPlan plan(int world_size) const {
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
    RunPlan plan = resolve(make_run_config(run, run_file.empty() ? "the command line" : run_file, overrides, warnings,
                                           names_gpu(launch.device)),
                           world_size);
    plan.model_found = true;
    require<ConfigError>(!plan.data.sources.empty(),
                         "no data to evaluate with: --data FILE, or a RUN.json that has it");
    if (plan.layout.seq_length == 0)
      plan.layout.seq_length = std::min(model_config_of(plan).max_positions, kLongestDefault);
    return plan;
  }
};

/// Throws what would stop the evaluation. Returns lines for the user.
std::vector<std::string> validate_eval(const EvalOptions& options, int ranks) {
  const RunPlan plan = options.plan(ranks);
  const ModelConfig config = model_config_of(plan);
  if (!options.model_found)
    ModelSource(find_model(options.model_dir, options.adapters)).model().require_positions(plan.layout.seq_length);
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

void print(const Evaluation& result, const EvalOptions& options, const RunPlan& plan) {
  if (options.json) {
    const OrderedJson json{{"format", kEvaluationFormat.str()},       {"loss", result.loss},
                           {"perplexity", result.perplexity()},       {"bits_per_token", result.bits_per_token()},
                           {"bits_per_byte", result.bits_per_byte()}, {"targets", result.targets},
                           {"text_bytes", result.text_bytes},         {"seconds", result.seconds}};
    fmt::print("{}\n", json.dump());
    return;
  }
  fmt::print("loss {:.6f}  {}\n", result.loss, describe(result));
  fmt::print("{} targets, {} of text, in sequences of {}: {:.1f} s, {}\n", result.targets,
             format_bytes(result.text_bytes), plan.layout.seq_length, result.seconds,
             format_token_rate(static_cast<double>(result.targets) / result.seconds));
}

void eval_rank(EvalOptions options, Communicator& world, const Context& context) {
  const FoundModel found = find_model(options.model_dir, options.adapters, world, context);
  say_choice(found.choice);
  options.model_dir = found.folder.string(), options.model_found = true;
  const RunPlan plan = options.plan(world.size());
  watch_calls(world, plan);
  const FlightFolder flight(world, own_flight_folder(world, context));
  if (world.rank() == 0)
    for (const std::string& note : validate_eval(options, world.size())) fmt::print(stderr, "note: {}\n", note);
  world.barrier().wait();
  const Mesh mesh(world, plan.layout.grid());
  const ModelSource source(found);
  source.model().require_positions(plan.layout.seq_length);
  ModelConfig config = model_config_of(plan);
  config.adapter = source.config().adapter;
  config.tie_word_embeddings = source.config().tie_word_embeddings;
  Decoder decoder(
      config, {}, {},
      ModelRanks(mesh, plan.layout.sequence_parallel, pipeline_cut_of(plan, config), plan.layout.context_method));
  ShardedModel::Options sharding = plan.layout.sharding_options();
  sharding.training = false;
  ShardedModel model(context, mesh, decoder, sharding);
  model.load(source.weights());
  Engine engine(model);
  engine.set_schedule(schedule_at(mesh, plan.layout.pipeline));
  const auto tokenizer = tokenizer_of(plan.data);
  const RunData data = open_data(plan, *tokenizer);
  const Evaluation result = evaluate(engine, model, data.validation ? *data.validation : data.training, *tokenizer,
                                     plan.layout.evaluation_rows);
  if (world.rank() == 0) print(result, options, plan);
}

}  // namespace

void add_eval(CLI::App& app, Invocation& invocation) {
  CLI::App* command = add_command(
      app, "eval", "Measures how well a model predicts text: loss, perplexity, bits per byte",
      {"nought eval out/quickstart --data 'book/*.txt'", "nought eval MODEL_DIR --data corpus.tokens --ranks 2",
       "nought eval out run.json      (the validation data of that run)", "nought eval MODEL_DIR chats.jsonl",
       "nought eval MODEL_DIR --data book.txt --ranks 4 --set deepspeed.zero_optimization.stage=3"});
  const auto options = std::make_shared<EvalOptions>();
  command
      ->add_option("MODEL_DIR", options->model_dir,
                   "A Hugging Face folder, a GGUF file, a checkpoint, or the output_dir of a run")
      ->required();
  command->add_option(
      "RUN.json", options->run_file,
      "A run whose data, layout and precision to use (default: fp32, stage 0), or a file as for --data");
  command
      ->add_option("--data", options->files,
                   "Files to evaluate on, as data.files of a run; they replace the run's data")
      ->type_name("FILE")
      ->expected(1)
      ->allow_extra_args(false)
      ->take_all();
  command
      ->add_option("--tokenizer", options->tokenizer,
                   "The tokenizer, as data.tokenizer of a run; default: the folder's own, else bytes")
      ->type_name("NAME");
  command
      ->add_option("--seq-length", options->seq_length,
                   fmt::format("Tokens per sequence; default: the model's, at most {}", kLongestDefault))
      ->type_name("N");
  command->add_option("--batch-size", options->batch_size, "Sequences per rank and forward pass")->type_name("N");
  command->add_flag("--json", options->json, "Print one JSON object");
  add_adapter_options(*command, options->adapters);
  add_override_option(*command, options->overrides, "training.bf16=true");
  add_launch_options(*command, options->launch);
  add_device_option(*command, options->launch);
  command->callback([&invocation, options] {
    // What is no RUN.json is what to evaluate on, as people put it there.
    if (!options->run_file.empty() && !options->run_file.ends_with(".json"))
      options->files.push_back(std::exchange(options->run_file, ""));
    invocation.action = [&invocation, options] {
      return launch(
          invocation, options->launch,
          [&] { validate_eval(*options, static_cast<int>(options->launch.ranks.value_or(1))); },
          [&](Communicator& world, const Context& context) { eval_rank(*options, world, context); });
    };
  });
}

}  // namespace nought
