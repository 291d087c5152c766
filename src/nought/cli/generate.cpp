// nought generate: continues prompts with a model of a Hugging Face folder.
#include "nought/infer/generate.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <fstream>
#include <memory>
#include <numeric>

#include "nought/base/json.h"
#include "nought/base/text.h"
#include "nought/cli/commands.h"
#include "nought/cli/device.h"
#include "nought/cli/flight.h"
#include "nought/cli/generation.h"
#include "nought/cli/launch.h"
#include "nought/cli/speculation.h"
#include "nought/comm/flight_timeout.h"
#include "nought/infer/text_stream.h"
#include "nought/io/atomic_file.h"
#include "nought/io/files.h"

namespace nought {

namespace {

struct GenerateFlags : GenerationOptions {
  std::vector<std::string> prompts, ids;
  std::string prompts_file, logprobs;
  bool parse_special_tokens = false;
  LaunchOptions launch;
  GenerationSizes sizes;

  /// What shows without the model's weights.
  void check() const {
    require<ConfigError>(ids.empty() != (prompts.empty() && prompts_file.empty()),
                         "give what to continue: --prompt, --prompts-file or --ids");
    generate.validate();
    speculation.check();
    if (!logprobs.empty()) {
      const std::filesystem::path folder = std::filesystem::absolute(logprobs).parent_path();
      require<IoError>(std::filesystem::is_directory(folder), "--logprobs {}: {} is not a folder", logprobs,
                       folder.string());
    }
    check_mesh(*this, launch, sizes);
  }
};

std::vector<int32_t> parse_ids(const std::string& text, int64_t vocab_size) {
  std::vector<int32_t> ids;
  for (const std::string& part : split(text, ',')) {
    int32_t id = -1;
    const auto [stop, error] = std::from_chars(part.data(), part.data() + part.size(), id);
    require<ConfigError>(error == std::errc() && stop == part.data() + part.size() && 0 <= id && id < vocab_size,
                         "--ids: \"{}\" is not a token of the model (0 to {})", part, vocab_size - 1);
    ids.push_back(id);
  }
  return ids;
}

/// One prompt per line; of a .jsonl file, each line's "prompt".
std::vector<std::string> read_prompts(const std::string& path) {
  const bool is_json = path.ends_with(".jsonl");
  std::vector<std::string> prompts;
  std::string text = read_text(path);
  if (text.ends_with('\n')) text.pop_back();
  for (std::string& line : split(text, '\n')) {
    if (is_json) {
      const auto json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
      const auto prompt = json.is_object() ? json.find("prompt") : json.end();
      require<ConfigError>(prompt != json.end() && prompt->is_string(),
                           "{}:{}: expected an object with a \"prompt\" that is a string", path, prompts.size() + 1);
      line = prompt->get<std::string>();
    }
    require<ConfigError>(!line.empty(), "{}:{} is empty: expected a prompt on every line", path, prompts.size() + 1);
    prompts.push_back(std::move(line));
  }
  return prompts;
}

/// Prints replies as they come, in the order of the prompts: those behind the first that has not ended wait. On all
/// ranks but the first it only knows when a reply ends.
class Printer final : public TokenSink {
 public:
  /// titles: what is printed before each reply, when its first token comes. tokenizer null: ids instead of text.
  Printer(std::vector<std::string> titles, const Tokenizer* tokenizer, const std::vector<std::string>& stops,
          bool prints)
      : replies_(titles.size()), prints_(prints) {
    for (size_t i = 0; i < titles.size(); ++i) {
      if (titles.size() > 1) replies_[i].waiting = fmt::format("--- {} of {} ---\n", i + 1, titles.size());
      replies_[i].waiting += titles[i];
      if (tokenizer) replies_[i].text = std::make_unique<TextStream>(*tokenizer, stops);
    }
  }
  bool on_token(size_t prompt, int32_t token) override {
    Reply& reply = replies_[prompt];
    reply.waiting += reply.text ? reply.text->push(token) : fmt::format(",{}", token);
    show();
    return !reply.text || !reply.text->stopped();
  }
  /// Keeps log-probabilities for write_log_probabilities().
  void keep_log_probabilities() { keeps_log_probabilities_ = true; }
  bool wants_log_probabilities() const override { return keeps_log_probabilities_; }
  void on_log_probability(size_t prompt, float value) override { replies_[prompt].log_probabilities.push_back(value); }
  /// A line for each prompt.
  void write_log_probabilities(const std::string& path, const std::vector<std::vector<int32_t>>& tokens) const {
    std::string lines;
    for (size_t i = 0; i < tokens.size(); ++i)
      lines +=
          OrderedJson{{"prompt", i}, {"tokens", tokens[i]}, {"logprobs", replies_[i].log_probabilities}}.dump() + "\n";
    write_text_atomically(path, lines);
  }
  void on_end(size_t prompt) override {
    Reply& reply = replies_[prompt];
    if (reply.text) reply.waiting += reply.text->finish();
    reply.waiting += '\n';
    reply.ended = true;
    show();
  }

 private:
  struct Reply {
    std::unique_ptr<TextStream> text;
    std::string waiting;
    std::vector<float> log_probabilities;
    bool ended = false;
  };
  void show() {
    if (!prints_) return;
    for (; shown_ < replies_.size(); ++shown_) {
      Reply& reply = replies_[shown_];
      fmt::print("{}", std::exchange(reply.waiting, {}));
      if (!reply.ended) break;
    }
    flush_printed(stdout);
  }

  std::vector<Reply> replies_;
  bool prints_, keeps_log_probabilities_ = false;
  size_t shown_ = 0;  // replies that are printed whole
};

void run_generate(GenerateFlags options, Communicator& world, const Context& context) {
  const FlightFolder flight(world, own_flight_folder(world, context));
  if (!options.prompts_file.empty())
    for (std::string& prompt : read_prompts(options.prompts_file)) options.prompts.push_back(std::move(prompt));
  const bool of_text = options.ids.empty();
  LoadedModel model(options, world, context, options.sizes);
  const int64_t vocab_size = model.decoder().config().vocab_size;
  const Tokenizer& tokenizer = model.tokenizer();
  if (of_text) model.require_tokenizer(), tokenizer.check_fits(vocab_size);
  use_generation_config(model.folder(), options, world.rank() == 0);
  std::vector<std::vector<int32_t>> prompts;
  for (const std::string& text : options.ids) prompts.push_back(parse_ids(text, vocab_size));
  for (const std::string& text : options.prompts) {
    prompts.emplace_back(tokenizer.prefix().begin(), tokenizer.prefix().end());
    tokenizer.encode(text, prompts.back(), {.specials = options.parse_special_tokens});
  }
  options.generate.stop_ids = model.stop_ids(of_text);
  int64_t longest = 0;
  for (const std::vector<int32_t>& prompt : prompts) longest = std::max(longest, std::ssize(prompt));
  options.generate.speculation =
      make_speculation(options, model,
                       {.capacity = longest + options.generate.max_new_tokens,
                        .sequences = std::clamp<int64_t>(std::ssize(prompts), 1, options.generate.batch)});
  Printer printer(of_text ? options.prompts : options.ids, of_text ? &tokenizer : nullptr, options.stops,
                  world.rank() == 0);
  if (!options.logprobs.empty() && world.rank() == 0) printer.keep_log_probabilities();
  const auto begin = std::chrono::steady_clock::now();
  const auto replies = generate(model.decoder(), model.context(), model.dtype(), prompts, options.generate, printer);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (world.rank() != 0) return;
  if (!options.logprobs.empty()) printer.write_log_probabilities(options.logprobs, replies);
  const size_t count = std::accumulate(replies.begin(), replies.end(), size_t{0},
                                       [](size_t sum, const auto& reply) { return sum + reply.size(); });
  fmt::print(stderr, "[{} tokens in {:.1f} s, {}]\n", count, seconds,
             format_token_rate(static_cast<double>(count) / seconds));
}

}  // namespace

void add_generate(CLI::App& app, Invocation& invocation) {
  CLI::App* command = add_command(app, "generate", "Continues prompts",
                                  {"nought generate out/quickstart --prompt '#include <' --max-new-tokens 400",
                                   "nought generate MODEL_DIR --prompts-file prompts.txt --top-p 0.9 --stop '\\n\\n'",
                                   "nought generate MODEL_DIR --ids 1,15043 --temperature 0",
                                   "nought generate MODEL_DIR --prompt Once --ranks 2      (they share its matrices)",
                                   "nought generate MODEL_DIR --prompt Once --ranks 8 --tp 2 --pp 4"});
  const auto options = std::make_shared<GenerateFlags>();
  command->add_option("--prompt", options->prompts, "Text to continue; may be given several times")
      ->type_name("TEXT")
      ->expected(1)
      ->allow_extra_args(false)
      ->take_all();
  command->add_option("--prompts-file", options->prompts_file,
                      "File with a prompt on every line; in a .jsonl file, under the key \"prompt\" of every line");
  command->add_flag("--parse-special-tokens", options->parse_special_tokens,
                    "What a prompt spells like a special token becomes that token; default: it stays text");
  command->add_option("--ids", options->ids, "Token ids to continue, in place of text")
      ->type_name("ID,ID,...")
      ->expected(1)
      ->allow_extra_args(false)
      ->take_all();
  add_generation_options(*command, *options);
  command
      ->add_option("--logprobs", options->logprobs,
                   "File to write: a JSON line for each prompt, with its new tokens and their log-probabilities by the "
                   "model, before penalties and temperature; nought probe --logprobs gives the same numbers")
      ->type_name("FILE");
  command->add_option("--batch-size", options->generate.batch, "How many prompts are computed together")
      ->capture_default_str();
  add_mesh_options(*command, options->sizes);
  add_launch_options(*command, options->launch);
  add_device_option(*command, options->launch);
  command->callback([&invocation, options] {
    invocation.action = [&invocation, options] {
      return launch(
          invocation, options->launch, [&] { options->check(); },
          [&](Communicator& world, const Context& context) { run_generate(*options, world, context); });
    };
  });
}

}  // namespace nought
