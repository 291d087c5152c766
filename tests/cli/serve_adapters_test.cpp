// A server with several adapters beside its model, as clients see it.
#include "serve/http_client.h"
#include "support/golden.h"
#include "support/message_of.h"
#include "support/size.h"
#include "support/temp_folder.h"
#include "support/written_adapter.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/cli/model_server.h"
#include "nought/comm/communicator.h"

namespace nought::serve_adapters_test {
namespace {

using test::Client;
using test::golden_folder;
using test::TempFolder;
using testing::HasSubstr;

/// Calls use(ask) with ask(path, body): the status and the JSON that the server of a model answers.
using Ask = std::function<std::pair<int, Json>(const std::string& path, const Json& body)>;
void with_server(const std::string& model_dir, const std::vector<std::string>& choices,
                 const std::function<void(const Ask& ask)>& use) {
  ServeOptions options;
  options.model_dir = model_dir, options.tokenizer = "bytes", options.port = 0, options.name = "base";
  options.engine.capacity = 64, options.adapters.choices = choices, options.drain_seconds = 0;
  const Context context = Context::cpu();
  const auto self = make_self_communicator();
  LoadedModel model(options, *self, context);
  ModelServer server(options, model, *self);
  server.run([&](const std::atomic<bool>&) {
    use([&](const std::string& path, const Json& body) -> std::pair<int, Json> {
      Client client(server.port());
      client.send(body.is_null() ? "GET " + path + " HTTP/1.1\r\nHost: x\r\n\r\n" : test::post(path, body.dump()));
      const std::string head = client.read_to("\r\n\r\n");
      const std::string answer = client.read_bytes(std::stoul(head.substr(head.find("Content-Length: ") + 16)));
      return {std::stoi(head.substr(9, 3)), Json::parse(answer)};
    });
  });
}

Json completion(const std::string& model) {
  return {{"model", model}, {"prompt", {5, 9, 17}}, {"max_tokens", 8}, {"temperature", 0}, {"logprobs", 2}};
}

NOUGHT_SIZE(medium);
TEST(ServeAdapters, a_request_chooses_one_by_its_model) {
  const TempFolder folder;
  const std::string base = golden_folder("open/llama");
  const std::string one =
      test::write_adapter(folder / "one", base, {{"r", 4}, {"target_modules", "all-linear"}}, 1).string();
  std::map<std::string, Json> expected;  // by what is served alone
  const auto answers_of = [](const Ask& ask, const std::string& model) {
    Json answers = ask("/v1/completions", completion(model)).second["choices"];
    answers.push_back(ask("/v1/embeddings", {{"model", model}, {"input", {5, 9, 17}}}).second["data"]);
    return answers;
  };
  with_server(base, {}, [&](const Ask& ask) { expected["base"] = answers_of(ask, "base"); });
  with_server(one, {}, [&](const Ask& ask) { expected["one"] = answers_of(ask, "base"); });
  with_server(base, {"half=" + one + "=0.5", "one=" + one}, [&](const Ask& ask) {
    EXPECT_EQ(answers_of(ask, "base"), expected["base"]);
    EXPECT_EQ(answers_of(ask, "one"), expected["one"]);
    const Json half = answers_of(ask, "half");
    EXPECT_NE(half, expected["base"]);
    EXPECT_NE(half, expected["one"]);
    EXPECT_EQ(ask("/v1/completions", completion("one")).second["model"], "one");
    const Json models = ask("/v1/models", nullptr).second["data"];
    ASSERT_EQ(models.size(), 3u);
    EXPECT_FALSE(models[0].contains("parent"));
    EXPECT_EQ(models[2]["id"], "one");
    EXPECT_EQ(models[2]["parent"], "base");
    EXPECT_EQ(models[2]["root"], one);
    EXPECT_EQ(ask("/v1/models/half", nullptr).second, models[1]);
    const auto [status, error] = ask("/v1/completions", completion("other"));
    EXPECT_EQ(status, 404);
    EXPECT_THAT(error.dump(), HasSubstr(R"(but \"base\", \"half\", \"one\")"));
  });
  const auto serve_as = [&](const std::string& name) { with_server(base, {name + "=" + one}, [](const Ask&) {}); };
  EXPECT_THAT(test::message_of<ConfigError>([&] { serve_as("base"); }),
              HasSubstr("--adapter base: this is the name of the model itself (--model-name)"));
}

}  // namespace
}  // namespace nought::serve_adapters_test
