#include "nought/bench/load.h"

#include <mutex>
#include <set>

#include "serve/http_client.h"
#include "support/message_of.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "nought/base/error.h"
#include "nought/base/json.h"

namespace nought::load_test {
namespace {

using testing::HasSubstr;

/// A server whose words are tokens, with three around them. It answers when it is asked for the next time, or after all
/// that may ask at once have asked.
class FakeServer {
 public:
  explicit FakeServer(size_t at_once) : at_once_(at_once) {}
  ~FakeServer() { EXPECT_TRUE(held_.empty()); }

  struct Seen {
    std::set<std::string> prompts = {};
    size_t most_at_once = 0, asked = 0;
  };
  Seen seen() {
    const std::lock_guard lock(mutex_);
    return seen_;
  }
  void say_less(bool counts, bool names_models) {
    const std::lock_guard lock(mutex_);
    counts_ = counts;
    names_models_ = names_models;
  }
  HttpAddress address() const { return {.host = "127.0.0.1", .port = serving_.port()}; }

 private:
  void handle(const HttpRequest& request, const std::shared_ptr<HttpReply>& reply) {
    const std::lock_guard lock(mutex_);
    if (request.path == "/v1/models")
      return reply->send(200, "application/json",
                         names_models_ ? R"({"data": [{"id": "fake"}, {"id": "other"}]})" : "{}");
    const Json body = Json::parse(request.body);
    const bool chat = request.path == "/v1/chat/completions";
    const std::string prompt = (chat ? body["messages"][0]["content"] : body["prompt"]).get<std::string>();
    EXPECT_EQ(body["model"], "fake");
    EXPECT_EQ(request.authorization, "Bearer secret");
    const Json usage{{"prompt_tokens", 4 + std::count(prompt.begin(), prompt.end(), ' ')},
                     {"completion_tokens", body["max_tokens"]},
                     {"prompt_tokens_details", {{"cached_tokens", 2}}}};
    if (!body.contains("stream"))
      return reply->send(200, "application/json", counts_ ? Json{{"usage", usage}}.dump() : "{}");
    ++seen_.asked;
    seen_.prompts.insert(prompt);
    if (seen_.asked == 3) return reply->send(429, "application/json", R"({"error": {"message": "too many"}})");
    reply->begin("text/event-stream");
    if (chat) reply->write("data: {\"choices\": [{\"delta\": {\"role\": \"assistant\", \"content\": \"\"}}]}\n\n");
    held_.push_back([reply, chat, usage, is_broken = seen_.asked == 5, counted = counts_] {
      for (int64_t i = 0; i < usage["completion_tokens"]; ++i)
        reply->write(chat ? "data: {\"choices\": [{\"delta\": {\"content\": \"a\"}}]}\n\n"
                          : "data: {\"choices\": [{\"text\": \"a\"}], \"usage\": null}\n\n");
      reply->write("data: {\"choices\": [{\"text\": \"\", \"finish_reason\": \"length\"}]}\n\n");
      if (is_broken) reply->write("data: {\"error\": {\"message\": \"it broke\"}}\n\n");
      if (counted) reply->write("data: " + Json{{"choices", Json::array()}, {"usage", usage}}.dump() + "\n\n");
      if (!is_broken) reply->write("data: [DONE]\n\n");
      reply->finish();
    });
    seen_.most_at_once = std::max(seen_.most_at_once, held_.size());
    if (held_.size() == at_once_)
      for (const auto& answer : std::exchange(held_, {})) answer();
  }

  std::mutex mutex_;
  Seen seen_;
  bool counts_ = true, names_models_ = true;
  size_t at_once_;
  std::vector<std::function<void()>> held_;
  test::Serving serving_{
      [this](const HttpRequest& request, const std::shared_ptr<HttpReply>& reply) { handle(request, reply); }};
};

LoadOptions options_of(int64_t prompt, int64_t answer) {
  return {.key = "secret", .prompt_tokens = {prompt, prompt}, .answer_tokens = {answer, answer}, .timeout_seconds = 10};
}

TEST(LoadGenerator, clients_ask_again_when_they_have_their_answer) {
  FakeServer server(2);
  LoadOptions options = options_of(40, 5);
  options.shared_tokens = 20;
  options.prefixes = 2;
  LoadGenerator generator(server.address(), options);
  EXPECT_EQ(generator.model(), "fake");
  // Two clients: the third request fails at once, so that its client asks again, and all others come in pairs.
  const LoadRun run = generator.run({.clients = 2, .requests = 9});
  ASSERT_EQ(run.requests.size(), 9u);
  const FakeServer::Seen seen = server.seen();
  EXPECT_EQ(seen.asked, 9u);
  EXPECT_EQ(seen.most_at_once, 2u);
  std::vector<std::string> errors;
  for (const RequestTiming& each : run.requests) {
    if (!each.error.empty()) {
      errors.push_back(each.error);
      continue;
    }
    EXPECT_EQ(each.prompt_tokens, 40);
    EXPECT_EQ(each.cached_tokens, 2);
    EXPECT_EQ(each.answer_tokens, 5);
    ASSERT_EQ(each.texts.size(), 5u);
    EXPECT_LE(each.begin, each.texts.front());
    EXPECT_LE(each.texts.back(), each.end);
    EXPECT_LE(each.end, run.seconds);
  }
  EXPECT_THAT(errors, testing::UnorderedElementsAre("status 429: too many", "it broke"));
  std::set<std::string> beginnings;
  for (const std::string& prompt : seen.prompts) beginnings.insert(prompt.substr(0, 20 * 6 - 7));
  EXPECT_EQ(seen.prompts.size(), 9u);
  EXPECT_EQ(beginnings.size(), 2u);
}

TEST(LoadGenerator, requests_of_a_rate_wait_for_no_answer) {
  FakeServer server(19);
  LoadOptions options = options_of(12, 3);
  options.prompt_tokens.most = 30;
  options.chat = true;
  LoadGenerator generator(server.address(), options);
  const LoadRun run = generator.run({.rate = 400, .requests = 20});
  EXPECT_EQ(server.seen().most_at_once, 19u);  // one has failed
  EXPECT_EQ(run.requests[0].begin, 0);
  std::set<int64_t> lengths;
  for (size_t i = 1; i < run.requests.size(); ++i) {
    EXPECT_GT(run.requests[i].begin, run.requests[i - 1].begin);
    lengths.insert(run.requests[i].prompt_tokens);
    EXPECT_EQ(run.requests[i].texts.size(), run.requests[i].prompt_tokens == 0 ? 0u : 3u);
  }
  EXPECT_GT(lengths.size(), 5u);
  EXPECT_GE(*std::next(lengths.begin()), 12);  // the one that has failed has none
  EXPECT_LE(*lengths.rbegin(), 30);
  // 19 gaps of 2.5 ms in the mean.
  EXPECT_GT(run.requests.back().begin, 0.01);
  EXPECT_LT(run.requests.back().begin, 0.2);
}

TEST(LoadGenerator, servers_that_do_not_say_enough_are_refused_by_name) {
  FakeServer server(1);
  server.say_less(/*counts=*/false, /*names_models=*/true);
  EXPECT_THAT(test::message_of<ConfigError>([&] { LoadGenerator(server.address(), options_of(9, 2)); }),
              HasSubstr("/v1/completions does not tell how many tokens a prompt has"));
  server.say_less(/*counts=*/false, /*names_models=*/false);
  EXPECT_THAT(test::message_of<ConfigError>([&] { LoadGenerator(server.address(), options_of(9, 2)); }),
              HasSubstr("/v1/models names no model"));
  EXPECT_THAT(test::message_of<ConfigError>([&] { parse_token_range("5-3", "--prompt-tokens"); }),
              HasSubstr("--prompt-tokens 5-3: expected"));
  for (const char* bad : {"", "x", "0", "5-", "5x", "3-5x", "99999999999"})
    EXPECT_ANY_THROW(parse_token_range(bad, "--prompt-tokens")) << bad;
  EXPECT_EQ(parse_token_range("3-5", "").most, 5);
}

}  // namespace
}  // namespace nought::load_test
