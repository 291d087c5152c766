// nought generate: continues a prompt with a model of a Hugging Face folder.
#include "nought/infer/generate.h"

#include <charconv>
#include <chrono>
#include <memory>

#include "nought/base/text.h"
#include "nought/cli/commands.h"
#include "nought/cli/launch.h"
#include "nought/data/tokenizer.h"
#include "nought/train/hf_folder.h"

namespace nought {

namespace {

struct Options {
  std::string model_dir, prompt, ids, tokenizer;
  GenerateOptions generate;
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

void run_generate(Options& options, Communicator& self, const Context& context) {
  require<ConfigError>(options.prompt.empty() != options.ids.empty(), "give the text to continue: --prompt or --ids");
  Decoder decoder(ModelConfig::from_folder(options.model_dir));
  const HfWeights weights(options.model_dir, decoder);
  ShardedModel model(context, self, decoder, {.dtype = weights.dtype(), .training = false});
  model.load(weights);

  const std::string own = holds_tokenizer(options.model_dir) ? options.model_dir : "bytes";
  const auto tokenizer = make_tokenizer(options.tokenizer.empty() ? own : options.tokenizer);
  StreamDecoder stream(*tokenizer);
  std::vector<int32_t> prompt;
  if (options.ids.empty()) {
    tokenizer->check_fits(decoder.config().vocab_size);
    prompt.assign(tokenizer->prefix().begin(), tokenizer->prefix().end());
    tokenizer->encode(options.prompt, prompt);
    options.generate.stop_ids = {tokenizer->separator()};
    fmt::print("{}", options.prompt);
  } else {
    prompt = parse_ids(options.ids, decoder.config().vocab_size);
    for (int64_t id : decoder.config().eos_token_ids) options.generate.stop_ids.push_back(static_cast<int32_t>(id));
    fmt::print("{}", options.ids);
  }
  std::fflush(stdout);
  const auto begin = std::chrono::steady_clock::now();
  const size_t count = generate(decoder, context, weights.dtype(), prompt, options.generate, [&](int32_t token) {
                         if (options.ids.empty()) {
                           fmt::print("{}", stream.push(token));
                         } else {
                           fmt::print(",{}", token);
                         }
                         std::fflush(stdout);
                       }).size();
  fmt::print("{}", stream.finish());
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  fmt::print("\n");
  std::fflush(stdout);
  fmt::print(stderr, "[{} tokens in {:.1f} s, {:.0f} tokens/s]\n", count, seconds,
             static_cast<double>(count) / seconds);
}

}  // namespace

void add_generate(CLI::App& app, Invocation& invocation) {
  CLI::App* command = add_command(app, "generate", "Continues a prompt",
                                  {"nought generate out/quickstart --prompt '#include <' --max-new-tokens 400",
                                   "nought generate MODEL_DIR --ids 1,15043 --temperature 0"});
  const auto options = std::make_shared<Options>();
  SamplingParameters& sampling = options->generate.sampling;
  command->add_option("MODEL_DIR", options->model_dir, "A Hugging Face folder, or the output_dir of a run")->required();
  command->add_option("--prompt", options->prompt, "Text to continue")->type_name("TEXT");
  command->add_option("--ids", options->ids, "Token ids to continue, for models of other tokenizers")
      ->type_name("ID,ID,...");
  command->add_option("--tokenizer", options->tokenizer,
                      "As data.tokenizer of a run; default: the folder's own, else bytes");
  command->add_option("--max-new-tokens", options->generate.max_new_tokens, "Stop after so many")
      ->capture_default_str();
  command->add_option("--temperature", sampling.temperature, "0 always takes the likeliest token")
      ->capture_default_str();
  command->add_option("--top-k", sampling.top_k, "Sample from the k likeliest tokens; 0: all")->capture_default_str();
  command->add_option("--top-p", sampling.top_p, "Sample from the likeliest tokens that sum to p")
      ->capture_default_str();
  command->add_option("--seed", sampling.seed, "The same seed gives the same text")->capture_default_str();
  command->callback([&invocation, options] {
    invocation.action = [&invocation, options] {
      return launch(
          invocation, {}, [] {},
          [&](Communicator& self, const Context& context) { run_generate(*options, self, context); });
    };
  });
}

}  // namespace nought
