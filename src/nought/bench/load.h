// Load: requests to a server of OpenAI's API as clients send them, and when each part of the answers came.
//
// Goals: any server that speaks the API, this program's own or another; the times are those that a client sees.
// Non-goals: the quality of answers, TLS.
#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "nought/base/json_fwd.h"
#include "nought/serve/http_client.h"

namespace nought {

/// Each number from the least to the most is as likely.
struct TokenRange {
  int64_t least = 0, most = 0;
};
/// "512" or "256-1024". ConfigError names the option.
TokenRange parse_token_range(const std::string& text, const std::string& option);

struct LoadOptions {
  std::string model = {};  // "": the first that the server names
  std::string key = {};    // what Authorization says; "": nothing
  bool chat = false;       // /chat/completions in place of /completions
  bool lets_end = false;   // answers may end before they have their tokens
  TokenRange prompt_tokens = {512, 512}, answer_tokens = {128, 128};
  int64_t shared_tokens = 0;  // how many a prompt has in common with others
  int64_t prefixes = 1;       // how many such beginnings there are
  uint64_t seed = 0;
  double timeout_seconds = 600;  // what a request may take
};

/// How requests come: from clients that each wait for an answer before they ask again, or at random moments (Poisson).
struct LoadLevel {
  int64_t clients = 0;
  double rate = 0;  // requests/s; 0: of clients
  int64_t requests = 0;
};

/// Seconds from the beginning of the level.
struct RequestTiming {
  double begin = 0, end = 0;
  std::vector<double> texts = {};  // when each piece of text came
  int64_t prompt_tokens = 0, cached_tokens = 0, answer_tokens = 0;
  std::string error = {};  // why it failed, "" if it did not
};
struct LoadRun {
  LoadLevel level;
  double seconds = 0;
  std::vector<RequestTiming> requests = {};
};

class LoadGenerator {
 public:
  /// Asks the server for its model, and how many tokens the words of prompts have. ConfigError if it does not answer.
  LoadGenerator(const HttpAddress& address, LoadOptions options);
  const std::string& model() const { return options_.model; }
  LoadRun run(const LoadLevel& level);

 private:
  class Level;
  /// What a request gets back that is no stream. ConfigError in one line if it fails.
  Json ask(const std::string& method, const std::string& target, const std::string& body);
  HttpCall call(const std::string& method, const std::string& target, std::string body) const;
  std::string completions() const { return path_ + (options_.chat ? "/chat/completions" : "/completions"); }
  Json body_of(const std::string& prompt, int64_t answer_tokens) const;
  int64_t words_of(int64_t tokens) const;
  /// The prompt of request number `number`, of about so many tokens.
  std::string prompt(int64_t number, int64_t tokens) const;

  HttpClient client_;
  std::string server_, path_;
  LoadOptions options_;
  double tokens_around_ = 0;    // what a prompt has without words
  double tokens_per_word_ = 1;  // what a word adds
  uint64_t levels_ = 0;
};

}  // namespace nought
