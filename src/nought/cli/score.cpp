// nought score: what a classifier or a reward model says of texts, one JSON line for each.
#include <cstdio>
#include <memory>

#include "nought/base/json.h"
#include "nought/base/open_file.h"
#include "nought/cli/commands.h"
#include "nought/cli/evaluation.h"
#include "nought/cli/flight.h"
#include "nought/comm/flight_timeout.h"
#include "nought/nn/score_loss.h"
#include "nought/train/pair_run.h"

namespace nought {

namespace {

/// The classifier's name of a class, or its index.
OrderedJson name_of_class(const ClassifierConfig& classifier, int64_t index) {
  const Json names = classifier.names.empty() ? Json::object() : Json::parse(classifier.names);
  const auto found = names.find(std::to_string(index));
  return found != names.end() && found->is_string() ? OrderedJson(found->get<std::string>()) : OrderedJson(index);
}

/// {"score": x}, or {"scores": [...], "label": name} where they are logits of classes.
OrderedJson line_of(const ClassifierConfig& classifier, std::span<const double> scores) {
  OrderedJson line;
  if (scores.size() == 1) {
    line["score"] = scores[0];
    return line;
  }
  line["scores"] = std::vector<double>(scores.begin(), scores.end());
  if (classifier.problem_type() == ProblemType::single_label_classification)
    line["label"] = name_of_class(classifier, best_class(scores));
  return line;
}

void score_rank(const EvalOptions& options, const std::string& output, Communicator& world, const Context& context) {
  const FlightFolder flight(world, own_flight_folder(world, context));
  EvaluatedModel model(options, world, context);
  const auto& classifier = model.decoder().config().classifier;
  PairRun texts(model.plan(), model.data(), model.layout(), model.model(), model.decoder(), model.engine());
  double loss = 0;
  const SequenceSums all = texts.validation_sums(loss);
  if (world.rank() != 0) return;
  const auto labels = static_cast<size_t>(classifier->labels);
  const size_t stride = labels * 2;  // a text has an empty one beside it, unless texts are pairs
  const bool pairs = model.plan().alignment.answers_per_sample() == 2;
  std::string lines;
  for (size_t i = 0; i < all.size() / stride; ++i) {
    const auto of = [&](size_t side) { return std::span(all).subspan(i * stride + side * labels, labels); };
    const OrderedJson line =
        pairs ? OrderedJson{{"chosen_score", of(0)[0]}, {"rejected_score", of(1)[0]}} : line_of(*classifier, of(0));
    lines += line.dump() + "\n";
  }
  if (output.empty()) return void(std::fwrite(lines.data(), 1, lines.size(), stdout));
  write_text_atomically(output, lines);
  fmt::print("{}: the scores of {} {}\n", output, all.size() / stride, pairs ? "pairs" : "texts");
}

}  // namespace

void add_score(CLI::App& app, Invocation& invocation) {
  CLI::App* command =
      add_command(app, "score", "Writes what a classifier or a reward model says of texts, as JSON lines",
                  {"nought score CLASSIFIER --data texts.jsonl", "nought score REWARD_MODEL --data pairs.jsonl",
                   "nought score REWARD_MODEL --data chats.jsonl --output scores.jsonl --ranks 2"});
  const auto options = std::make_shared<EvalOptions>();
  const auto output = std::make_shared<std::string>();
  options->without_labels = true;
  command
      ->add_option("MODEL_DIR", options->model_dir,
                   "A folder with a head for sequence classification, a checkpoint, or the output_dir of a run")
      ->required();
  command->add_option("--output", *output, "The file to write; default: standard output")->type_name("FILE");
  add_eval_options(*command, *options);
  command->callback([&invocation, options, output] {
    invocation.action = [&invocation, options, output] {
      return launch(
          invocation, options->launch,
          [&] {
            const ModelSource source(find_model(options->model_dir, options->adapters));
            source.config().require_head(options->model_dir);
            require<ConfigError>(source.config().classifier.has_value(),
                                 "{} predicts tokens and scores no texts: train a head with alignment.method = "
                                 "\"reward\" or \"classify\"; \"nought eval\" measures its loss",
                                 options->model_dir);
            validate_eval(*options, static_cast<int>(options->launch.ranks.value_or(1)));
          },
          [&](Communicator& world, const Context& context) { score_rank(*options, *output, world, context); });
    };
  });
}

}  // namespace nought
