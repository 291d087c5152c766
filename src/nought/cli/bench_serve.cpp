#include "nought/cli/bench_serve.h"

#include <algorithm>
#include <memory>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "nought/base/json.h"
#include "nought/base/text.h"
#include "nought/bench/load.h"
#include "nought/bench/load_report.h"
#include "nought/cli/device.h"
#include "nought/cli/launch.h"
#include "nought/cli/model_server.h"

namespace nought {

namespace {

struct BenchServeOptions : ServeOptions {
  std::string target, prompt_tokens = "512", answer_tokens = "128", goodput, api_key_file;
  std::vector<int64_t> clients;
  std::vector<double> rates;
  std::optional<int64_t> requests;
  LoadOptions load;
  LoadLimits limits;
  bool json = false;
  LaunchOptions launch;
  std::vector<const CLI::Option*> of_engine;  // what a server at a URL has settings of its own for

  bool names_url() const { return target.find("://") != std::string::npos; }
  bool gives(const std::string& flag) const {
    return std::any_of(of_engine.begin(), of_engine.end(),
                       [&](const CLI::Option* each) { return each->check_lname(flag) && each->count() > 0; });
  }

  /// Reads what is written as text, and fits the own engine to the load. ConfigError.
  void settle() {
    constexpr int64_t kMost = 4096, kMostRequests = 1 << 20;
    load.prompt_tokens = parse_token_range(prompt_tokens, "--prompt-tokens");
    load.answer_tokens = parse_token_range(answer_tokens, "--answer-tokens");
    limits = parse_load_limits(goodput);
    if (clients.empty() && rates.empty()) clients = {1, 8};
    for (const int64_t each : clients)
      require<ConfigError>(1 <= each && each <= kMost, "--clients must be 1 to {}, got {}", kMost, each);
    for (const double each : rates)
      require<ConfigError>(0 < each && each <= 1e5, "--rate must be above 0 and at most 100000, got {}", each);
    require<ConfigError>(!requests || (1 <= *requests && *requests <= kMostRequests),
                         "--requests must be 1 to {}, got {}", kMostRequests, requests.value_or(0));
    require<ConfigError>(0 <= load.shared_tokens && load.shared_tokens <= load.prompt_tokens.least,
                         "--shared-prefix {}: prompts have from {} tokens on (--prompt-tokens)", load.shared_tokens,
                         load.prompt_tokens.least);
    require<ConfigError>(load.prefixes >= 1, "--prefixes must be at least 1, got {}", load.prefixes);
    require<ConfigError>(0 < load.timeout_seconds && load.timeout_seconds <= 86400,
                         "--timeout must be above 0 and at most 86400 seconds, got {}", load.timeout_seconds);
    if (names_url()) return settle_url();
    require<ConfigError>(load.model.empty() && api_key_file.empty(), "{} is for a server at a URL",
                         load.model.empty() ? "--api-key-file" : "--model");
    model_dir = target;
    port = 0;
    max_waiting = kMostRequests;
    drain_seconds = 0;
    constexpr int64_t kAround = 256;  // what a chat template adds, and words that are longer than others
    if (!gives("max-context")) engine.capacity = load.prompt_tokens.most + load.answer_tokens.most + kAround;
    if (!gives("parallel") && !clients.empty())
      engine.sequences = std::min(*std::max_element(clients.begin(), clients.end()), kMostSequences);
    check();
  }
  std::vector<LoadLevel> levels() const {
    std::vector<LoadLevel> levels;
    for (const int64_t each : clients) levels.push_back({.clients = each, .requests = requests.value_or(4 * each)});
    for (const double each : rates) levels.push_back({.rate = each, .requests = requests.value_or(32)});
    return levels;
  }

 private:
  void settle_url() {
    for (const CLI::Option* each : of_engine)
      require<ConfigError>(each->count() == 0, "{} is for a MODEL_DIR: the server at {} has its own", each->get_name(),
                           target);
    const std::vector<std::string> keys = read_api_keys(api_key_file);
    if (!keys.empty()) load.key = keys[0];
  }
};

/// Loads the server at an address, and prints what came of it. Returns the exit code.
int run_load(const BenchServeOptions& options, const HttpAddress& address, const std::string& server) {
  LoadGenerator generator(address, options.load);
  std::vector<LoadSummary> loads;
  for (const LoadLevel& level : options.levels()) {
    loads.push_back(summarize(generator.run(level), options.limits));
    const LoadSummary& last = loads.back();
    if (last.failed > 0)
      fmt::print(stderr, "[{} of {} requests failed, the first: {}]\n", last.failed, level.requests, last.first_error);
  }
  if (options.json) {
    OrderedJson report{{"format", kLoadReportFormat.str()},
                       {"model", generator.model()},
                       {"server", server},
                       {"prompt_tokens", options.prompt_tokens},
                       {"answer_tokens", options.answer_tokens},
                       {"shared_tokens", options.load.shared_tokens},
                       {"prefixes", options.load.prefixes},
                       {"seed", options.load.seed},
                       {"loads", to_json(loads)}};
    fmt::print("{}\n", report.dump(2));
  } else {
    fmt::print("{} of {}: prompts of {} tokens, answers of {}{}\n{}", generator.model(), server, options.prompt_tokens,
               options.answer_tokens, options.load.lets_end ? " at most" : "", to_table(loads));
  }
  const bool all = std::all_of(loads.begin(), loads.end(), [](const LoadSummary& each) { return each.failed == 0; });
  return all ? 0 : 1;
}

int run_bench_serve(const Invocation& invocation, BenchServeOptions options) {
  options.settle();
  if (options.names_url()) return run_load(options, parse_http_address(options.target), options.target);
  int code = 0;
  const int launched = launch(
      invocation, options.launch, [] {},
      [&](Communicator& self, const Context& context) {
        LoadedModel model(options, self, context);
        ModelServer server(options, model, self);
        const int64_t least = options.load.prompt_tokens.least + options.load.answer_tokens.least;
        require<ConfigError>(least <= server.model().max_context,
                             "the context has {} tokens: prompt and answer need {}", server.model().max_context, least);
        const std::string name =
            fmt::format("nought, {} sequences of {} tokens", options.engine.sequences, server.model().max_context);
        server.run([&](const std::atomic<bool>&) {
          code = run_load(options, {.host = options.host, .port = server.port()}, name);
        });
      });
  return launched != 0 ? launched : code;
}

}  // namespace

void add_bench_serve(CLI::App& bench, Invocation& invocation) {
  const auto options = std::make_shared<BenchServeOptions>();
  CLI::App* command =
      bench.add_subcommand("serve", "A server as its clients see it: TTFT, ITL, TPOT, tokens/s, goodput");
  command
      ->add_option("TARGET", options->target,
                   "MODEL_DIR: it is served on a free port of this machine for the time; or http://HOST:PORT[/v1]: any "
                   "server of OpenAI's API")
      ->required();
  CLI::Option* clients =
      command
          ->add_option("--clients", options->clients,
                       "How many clients ask at once, each again when it has its answer; default: 1,8")
          ->delimiter(',')
          ->type_name("N,...");
  command->add_option("--rate", options->rates, "Or how many requests/s come at random moments (Poisson)")
      ->delimiter(',')
      ->type_name("R,...")
      ->excludes(clients);
  command
      ->add_option("--requests", options->requests, "Requests of each load; default: 4 for each client, 32 with --rate")
      ->type_name("N");
  command->add_option("--prompt-tokens", options->prompt_tokens, "Tokens of a prompt: a number, or a range as 256-1024")
      ->capture_default_str()
      ->type_name("N[-M]");
  command->add_option("--answer-tokens", options->answer_tokens, "Tokens of an answer, in the same form")
      ->capture_default_str()
      ->type_name("N[-M]");
  command
      ->add_option("--shared-prefix", options->load.shared_tokens,
                   "Tokens of a prompt that it begins with as others do, which a server may keep")
      ->type_name("N");
  command->add_option("--prefixes", options->load.prefixes, "How many such beginnings there are")
      ->capture_default_str()
      ->type_name("N");
  command
      ->add_option(
          "--goodput", options->goodput,
          "Count the requests that stay within limits, in ms: of ttft, itl (their longest gap), tpot, e2el; as "
          "ttft:2000,itl:100")
      ->type_name("NAME:MS,...");
  command->add_flag("--chat", options->load.chat, "Ask /chat/completions in place of /completions");
  command->add_flag("--lets-end", options->load.lets_end,
                    "Answers may end by themselves; for servers that do not know ignore_eos");
  command->add_option("--model", options->load.model, "The model's name at the URL; default: the first of its models");
  command
      ->add_option("--api-key-file", options->api_key_file,
                   "A file that you alone may read, whose first line is the key")
      ->type_name("FILE");
  command->add_option("--seed", options->load.seed, "Of the words of prompts, their lengths and moments")
      ->capture_default_str();
  command->add_option("--timeout", options->load.timeout_seconds, "Seconds after which a request has failed")
      ->capture_default_str();
  command->add_flag("--json", options->json, "Print one JSON object");
  const size_t before = command->get_options().size();
  add_engine_options(*command, *options);
  add_device_option(*command, options->launch);
  const std::vector<CLI::Option*> all = command->get_options();
  options->of_engine.assign(all.begin() + static_cast<std::ptrdiff_t>(before), all.end());
  command->callback([&invocation, options] {
    invocation.action = [&invocation, options] { return run_bench_serve(invocation, *options); };
  });
}

}  // namespace nought
