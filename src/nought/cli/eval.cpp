// nought eval: how well a model predicts some text: loss, perplexity, bits per byte; how well a classifier scores it;
// or how good the answers are that a model writes to prompts.
#include <memory>
#include <utility>

#include "nought/base/json.h"
#include "nought/base/text.h"
#include "nought/cli/commands.h"
#include "nought/cli/evaluation.h"
#include "nought/cli/flight.h"
#include "nought/comm/flight_timeout.h"
#include "nought/engine/evaluation.h"
#include "nought/io/file_format.h"
#include "nought/observe/progress.h"
#include "nought/train/judge_policy.h"
#include "nought/train/pair_run.h"

namespace nought {

namespace {

constexpr FileFormat kEvaluationFormat{"nought-evaluation", 1};

void print_scores(const Evaluation& result, int64_t texts, bool as_json) {
  if (as_json) {
    OrderedJson json{{"format", kEvaluationFormat.str()}, {"loss", result.loss}, {"texts", texts}};
    for (const auto& [name, value] : result.of_answers) json[name] = value;
    json["seconds"] = result.seconds;
    fmt::print("{}\n", json.dump());
    return;
  }
  fmt::print("loss {:.6f}", result.loss);
  for (const auto& [name, value] : result.of_answers) fmt::print("  {} {:.4f}", name, value);
  fmt::print("\n{} texts: {:.1f} s\n", texts, result.seconds);
}

void print_rewards(const Evaluation& result, int64_t answers, bool as_json) {
  if (as_json) {
    OrderedJson json{{"format", kEvaluationFormat.str()}, {"answers", answers}};
    for (const auto& [name, value] : result.of_answers) json[name] = value;
    json["seconds"] = result.seconds;
    fmt::print("{}\n", json.dump());
    return;
  }
  for (const auto& [name, value] : result.of_answers) fmt::print("{} {:.4f}\n", name, value);
  fmt::print("{} answers: {:.1f} s\n", answers, result.seconds);
}

void print(const Evaluation& result, bool as_json, const RunPlan& plan) {
  if (as_json) {
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

void eval_rank(const EvalOptions& options, bool as_json, Communicator& world, const Context& context) {
  const FlightFolder flight(world, own_flight_folder(world, context));
  EvaluatedModel model(options, world, context);
  const RunPlan& plan = model.plan();
  const RunData& data = model.data();
  if (plan.alignment.of_rewards()) {
    const Evaluation result =
        judge_policy(plan, data, model.layout(), model.model(), model.decoder(), model.engine(), model.tokenizer());
    const int64_t answers = data.validation_pairs->num_pairs() * plan.alignment.generations_to_validate;
    if (world.rank() == 0) print_rewards(result, answers, as_json);
    return;
  }
  if (plan.alignment.of_answers()) {
    PairRun pairs(plan, data, model.layout(), model.model(), model.decoder(), model.engine());
    const Evaluation result = pairs.validate();
    const int64_t texts = data.validation_pairs->num_pairs() * plan.alignment.answers_per_sample();
    if (world.rank() == 0) print_scores(result, texts, as_json);
    return;
  }
  const Evaluation result = evaluate(model.engine(), model.model(), data.validation ? *data.validation : data.training,
                                     model.tokenizer(), plan.layout.evaluation_rows);
  if (world.rank() == 0) print(result, as_json, plan);
}

}  // namespace

void add_eval(CLI::App& app, Invocation& invocation) {
  CLI::App* command = add_command(
      app, "eval", "Measures how well a model predicts text: loss, perplexity, bits per byte",
      {"nought eval out/quickstart --data 'book/*.txt'", "nought eval MODEL_DIR --data corpus.tokens --ranks 2",
       "nought eval out run.json      (that run's validation data, or rewards)", "nought eval MODEL_DIR chats.jsonl",
       "nought eval MODEL_DIR --data book.txt --ranks 4 --set deepspeed.zero_optimization.stage=3"});
  const auto options = std::make_shared<EvalOptions>();
  const auto as_json = std::make_shared<bool>(false);
  command
      ->add_option("MODEL_DIR", options->model_dir,
                   "A Hugging Face folder, a GGUF file, a checkpoint, or the output_dir of a run")
      ->required();
  command->add_option(
      "RUN.json", options->run_file,
      "A run whose data, layout and precision to use (default: fp32, stage 0), or a file as for --data");
  command->add_flag("--json", *as_json, "Print one JSON object");
  add_eval_options(*command, *options);
  add_kv_dtype_option(*command, options->kv_dtype);
  command
      ->add_option_function<std::string>(
          "--activations",
          [options](const std::string& name) {
            options->rounds_inputs = name == "int8";
            require<ConfigError>(options->rounds_inputs || name == "f32", "--activations {}: expected int8 or f32",
                                 name);
          },
          "int8: what rounding inputs to 8 bits costs, as generate does where they meet codes; default: f32, without "
          "it")
      ->type_name("int8|f32");
  command->callback([&invocation, options, as_json] {
    // What is no RUN.json is what to evaluate on, as people put it there.
    if (!options->run_file.empty() && !options->run_file.ends_with(".json"))
      options->files.push_back(std::exchange(options->run_file, ""));
    invocation.action = [&invocation, options, as_json] {
      return launch(
          invocation, options->launch,
          [&] { validate_eval(*options, static_cast<int>(options->launch.ranks.value_or(1))); },
          [&](Communicator& world, const Context& context) { eval_rank(*options, *as_json, world, context); });
    };
  });
}

}  // namespace nought
