#include "nought/serve/api.h"

#include "serve/http_client.h"
#include "support/golden.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/comm/communicator.h"
#include "nought/infer/generate.h"
#include "nought/serve/api_error.h"
#include "nought/serve/embeddings.h"
#include "nought/weights/hf_folder.h"
#include "nought/zero/sharded_model.h"

namespace nought::api_test {
namespace {

using test::Client;
using test::eventually;
using test::post;
using ::testing::AllOf;
using ::testing::HasSubstr;

/// A model whose tokens are bytes, behind the API.
class Served {
 public:
  explicit Served(const InferenceEngine::Options& options = {.capacity = 96, .sequences = 2}, int64_t max_waiting = 8,
                  const ApiOptions& api_options = {}, const std::string& chat = "")
      : decoder_(ModelConfig::from_folder(test::golden_folder("open/llama"))),
        self_(make_self_communicator()),
        sharded_(context_, *self_, decoder_, {.training = false}),
        tokenizer_(make_tokenizer("bytes")),
        chat_(chat.empty() ? chat_source(ChatFormat::chatml, *tokenizer_)
                           : chat_source_for(test::golden_folder("chat") + "/" + chat + ".jinja", "bytes", *tokenizer_),
              *tokenizer_),
        model_{.name = "tiny",
               .tokenizer = *tokenizer_,
               .chat = &chat_,
               .tool_form = tool_form_of(chat_, *tokenizer_),
               .vocab_size = decoder_.config().vocab_size,
               .hidden_size = decoder_.config().hidden_size,
               .max_context = options.capacity},
        loaded_((sharded_.load(HfWeights(test::golden_folder("open/llama"), decoder_)), true)),
        engine_(decoder_, context_, DType::f32, options),
        loop(engine_, max_waiting),
        api(model_, loop, options.capacity * options.sequences, api_options),
        serving([this](const HttpRequest& request, const std::shared_ptr<HttpReply>& reply) {
          api.handle(request, reply);
        }),
        computing_([this] { loop.run(); }) {}
  ~Served() {
    loop.stop();
    computing_.join();
  }
  /// The status and the JSON of an answer.
  std::pair<int, Json> ask(const std::string& path, const Json& body) { return send(post(path, body.dump())); }
  std::pair<int, Json> send(const std::string& bytes) {
    Client client(serving.port());
    client.send(bytes);
    const std::string head = client.read_to("\r\n\r\n");
    const size_t at = head.find("Content-Length: ");
    const std::string body = client.read_bytes(at == std::string::npos ? 0 : std::stoul(head.substr(at + 16)));
    return {std::stoi(head.substr(9, 3)), Json::parse(body, nullptr, false)};
  }
  /// The JSON of each event of a stream.
  std::vector<Json> stream(const std::string& path, Json body) {
    body["stream"] = true;
    Client client(serving.port());
    client.send(post(path, body.dump()));
    const std::string all = client.read_to("[DONE]\n\n");
    EXPECT_THAT(all, HasSubstr("text/event-stream"));
    EXPECT_THAT(all, HasSubstr("data: [DONE]\n\n"));
    std::vector<Json> events;
    for (size_t at = all.find("data: {"); at != std::string::npos; at = all.find("data: {", at + 1))
      events.push_back(Json::parse(all.substr(at + 6, all.find("\n\n", at) - at - 6)));
    return events;
  }
  std::vector<int32_t> alone(const std::string& prompt, const GenerateOptions& options) {
    struct Silent final : TokenSink {
      bool on_token(size_t, int32_t) override { return true; }
    } silent;
    const std::vector<int32_t> ids = tokenizer_->encode(prompt);
    return generate(decoder_, context_, DType::f32, std::span(&ids, 1), options, silent)[0];
  }
  const Tokenizer& tokenizer() const { return *tokenizer_; }

 private:
  Context context_ = Context::cpu();
  Decoder decoder_;
  std::unique_ptr<Communicator> self_;
  ShardedModel sharded_;
  std::unique_ptr<Tokenizer> tokenizer_;
  ChatTemplate chat_;
  ServedModel model_;
  bool loaded_;
  InferenceEngine engine_;

 public:
  EngineLoop loop;
  Api api;
  test::Serving serving;

 private:
  std::thread computing_;
};

TEST(Api, a_completion_is_what_generate_gives) {
  Served served;
  const GenerateOptions options{.max_new_tokens = 8, .sampling = {.temperature = 0.8, .seed = 5}};
  const auto [status, json] = served.ask("/v1/completions", {{"model", "tiny"},
                                                             {"prompt", {5, 9, 200}},
                                                             {"max_tokens", 8},
                                                             {"temperature", 0.8},
                                                             {"seed", 5},
                                                             {"logprobs", 0}});
  ASSERT_EQ(status, 200) << json;
  EXPECT_EQ(json["usage"]["prompt_tokens"], 3);
  EXPECT_EQ(json["usage"]["completion_tokens"], 8);
  EXPECT_EQ(json["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(json["object"], "text_completion");
  EXPECT_EQ(json["choices"][0]["logprobs"]["token_logprobs"].size(), 8u);
  const auto [again, text] =
      served.ask("/v1/completions",
                 {{"prompt", "abc"}, {"max_tokens", 8}, {"temperature", 0.8}, {"seed", 5}, {"ignore_eos", true}});
  ASSERT_EQ(again, 200) << text;
  const auto lossy = [](const std::string& bytes) {
    return Json::parse(Json(bytes).dump(-1, ' ', false, Json::error_handler_t::replace));
  };
  EXPECT_EQ(text["choices"][0]["text"], lossy(served.tokenizer().decode(served.alone("abc", options))));
}

TEST(Api, a_stream_adds_up_to_the_whole_answer) {
  Served served;
  for (const bool chat : {false, true}) {
    Json body{{"max_tokens", 12}, {"temperature", 0}, {"n", 2}, {"ignore_eos", true}};
    const std::string path = chat ? "/v1/chat/completions" : "/v1/completions";
    if (chat)
      body["messages"] = {{{"role", "user"}, {"content", "Hi"}}};
    else
      body["prompt"] = "Hi there";
    const auto [status, whole] = served.ask(path, body);
    ASSERT_EQ(status, 200) << whole;
    body["stream_options"] = {{"include_usage", true}};
    const std::vector<Json> events = served.stream(path, body);
    std::string texts[2];
    int ends = 0;
    for (const Json& event : events)
      for (const Json& choice : event["choices"]) {
        const Json& piece = chat ? choice["delta"].value("content", Json("")) : choice["text"];
        texts[choice["index"].get<size_t>()] += piece.get<std::string>();
        ends += choice["finish_reason"] == "length" ? 1 : 0;
      }
    for (size_t i = 0; i < 2; ++i)
      EXPECT_EQ(texts[i], chat ? whole["choices"][i]["message"]["content"] : whole["choices"][i]["text"]);
    EXPECT_EQ(ends, 2);
    Json usage = whole["usage"];
    usage["prompt_tokens_details"] = events.back()["usage"]["prompt_tokens_details"];
    EXPECT_EQ(events.back()["usage"], usage);
    if (chat) {
      EXPECT_EQ(events.front()["choices"][0]["delta"]["role"], "assistant");
    }
  }
}

TEST(Api, what_a_request_asks_of_the_text_holds_whatever_the_model_would_write) {
  Served served({.capacity = 400, .sequences = 2});
  const Json schema =
      Json::parse(R"({"type": "object", "properties": {"n": {"type": "integer", "minimum": 3, "maximum": 12},
    "s": {"type": "string", "maxLength": 4}, "k": {"enum": ["a", null]}}, "required": ["n", "s", "k"]})");
  Json body{{"messages", {{{"role", "user"}, {"content", "Hi"}}}}, {"n", 2}, {"seed", 4}, {"max_tokens", 300}};
  body["response_format"] = {{"type", "json_schema"}, {"json_schema", {{"name", "x"}, {"schema", schema}}}};
  const auto [status, json] = served.ask("/v1/chat/completions", body);
  ASSERT_EQ(status, 200) << json;
  for (const Json& choice : json["choices"]) {
    const Json value = Json::parse(choice["message"]["content"].get<std::string>(), nullptr, false);
    ASSERT_TRUE(value.is_object()) << choice;
    EXPECT_GE(value["n"].get<int>(), 3);
    EXPECT_LE(value["n"].get<int>(), 12);
    EXPECT_TRUE(value["k"] == "a" || value["k"].is_null());
    EXPECT_EQ(value.size(), 3u);
    EXPECT_EQ(choice["finish_reason"], "stop");
  }
  const Json text =
      served.ask("/v1/completions", {{"prompt", "x"}, {"guided_regex", "(ab){3}c?"}, {"max_tokens", 9}}).second;
  EXPECT_THAT(text["choices"][0]["text"].get<std::string>(), testing::MatchesRegex("abababc?"));
  const Json one =
      served.ask("/v1/completions", {{"prompt", "x"}, {"structured_outputs", {{"choice", {"yes", "no"}}}}}).second;
  EXPECT_THAT(one["choices"][0]["text"].get<std::string>(), testing::AnyOf("yes", "no"));
}

TEST(Api, an_answer_is_a_word_of_its_grammar) {
  Served served({.capacity = 200, .sequences = 2});
  const std::string grammar = "root ::= \"[\" item (\",\" item)* \"]\" # nests\nitem ::= [0-9] | root";
  for (const Json& field : std::vector<Json>{
           {{"guided_grammar", grammar}}, {{"grammar", grammar}}, {{"structured_outputs", {{"grammar", grammar}}}}}) {
    Json body{{"prompt", "x"}, {"seed", 3}, {"max_tokens", 150}, {"temperature", 1}};
    body.update(field);
    // The model, whose weights are random, is made to close what it opens.
    for (const char close : {']', '1', ']'}) body["logit_bias"][std::to_string(static_cast<int>(close))] = 9;
    const auto [status, json] = served.ask("/v1/completions", body);
    ASSERT_EQ(status, 200) << json;
    EXPECT_EQ(json["choices"][0]["finish_reason"], "stop");
    const Json value = Json::parse(json["choices"][0]["text"].get<std::string>(), nullptr, false);
    EXPECT_TRUE(value.is_array()) << json;
  }
  EXPECT_EQ(served.ask("/v1/completions", {{"prompt", "x"}, {"grammar", ""}, {"max_tokens", 1}}).first, 200);
}

TEST(Api, a_call_that_is_asked_for_is_made) {
  Served served({.capacity = 3000, .sequences = 1}, 8, {}, "qwen2_5");
  Json body{{"messages", {{{"role", "user"}, {"content", "Hi"}}}}, {"seed", 1}, {"max_tokens", 300}};
  body["tools"] = Json::parse(R"([{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}},
    {"type": "function", "function": {"name": "add", "strict": true, "parameters": {"type": "object",
      "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 99}}, "required": ["a"], "additionalProperties": false}}}])");
  body["tool_choice"] = {{"type", "function"}, {"function", {{"name", "add"}}}};
  const auto [status, json] = served.ask("/v1/chat/completions", body);
  ASSERT_EQ(status, 200) << json;
  const Json& message = json["choices"][0]["message"];
  ASSERT_EQ(message["tool_calls"].size(), 1u) << json;
  EXPECT_TRUE(message["content"].is_null());
  EXPECT_EQ(message["tool_calls"][0]["function"]["name"], "add");
  const Json arguments = Json::parse(message["tool_calls"][0]["function"]["arguments"].get<std::string>());
  EXPECT_LE(arguments["a"].get<int>(), 99);
  EXPECT_EQ(json["choices"][0]["finish_reason"], "tool_calls");
  body["tool_choice"]["function"]["name"] = "sub";
  EXPECT_EQ(served.ask("/v1/chat/completions", body).second["error"]["param"], "tool_choice.function.name");
}

TEST(Api, embeddings_have_length_one_in_either_encoding) {
  Served served;
  const auto [status, json] = served.ask("/v1/embeddings", {{"model", "tiny"}, {"input", {"abc", "abd", "abc"}}});
  ASSERT_EQ(status, 200) << json;
  ASSERT_EQ(json["data"].size(), 3u);
  const auto values = json["data"][0]["embedding"].get<std::vector<float>>();
  double squares = 0;
  for (const float value : values) squares += value * value;
  EXPECT_NEAR(squares, 1, 1e-5);
  EXPECT_EQ(json["data"][2]["embedding"], json["data"][0]["embedding"]);
  EXPECT_NE(json["data"][1]["embedding"], json["data"][0]["embedding"]);
  EXPECT_EQ(json["data"][1]["index"], 1);
  EXPECT_EQ(json["usage"]["prompt_tokens"], 9);
  const Json one =
      served.ask("/v1/embeddings", {{"input", {97, 98, 99}}, {"encoding_format", "base64"}, {"dimensions", 2}}).second;
  EXPECT_EQ(one["data"][0]["embedding"], base64_of(normalised(values, 2)));
  EXPECT_EQ(served.ask("/v1/embeddings", {{"input", "a"}, {"dimensions", 4096}}).second["error"]["param"],
            "dimensions");
  EXPECT_EQ(served.ask("/v1/embeddings", {{"input", ""}}).second["error"]["param"], "input");
  EXPECT_EQ(served.ask("/v1/embeddings", {{"input", std::string(97, 'a')}}).second["error"]["code"],
            "context_length_exceeded");
  EXPECT_EQ(base64_of({1.0F, -2.5F}), "AACAPwAAIMA=");
}

TEST(Api, messages_are_answered_as_chats_are) {
  Served served({.capacity = 96, .sequences = 1}, 1, {.keys = {"key"}});
  const auto ask = [&](const std::string& path, const std::string& body, const std::string& key) {
    return served.send(post(path, body, "x-api-key: " + key + "\r\n"));
  };
  const std::string body = R"({"max_tokens": 5, "temperature": 0, "messages": [{"role": "user", "content": "Hi"}]})";
  const auto [status, json] = ask("/v1/messages", body, "key");
  ASSERT_EQ(status, 200) << json;
  EXPECT_EQ(json["content"][0]["type"], "text");
  EXPECT_EQ(json["stop_reason"], "max_tokens");
  EXPECT_EQ(json["usage"]["output_tokens"], 5);
  EXPECT_EQ(ask("/v1/messages/count_tokens", R"({"messages": [{"role": "user", "content": "Hi"}]})", "key")
                .second["input_tokens"],
            json["usage"]["input_tokens"]);
  const auto [refused, error] = ask("/v1/messages", body, "other");
  EXPECT_EQ(refused, 401);
  EXPECT_EQ(error["error"]["type"], "authentication_error");
  EXPECT_EQ(ask("/v1/messages", R"({"messages": []})", "key").second["type"], "error");
}

TEST(Api, a_stop_string_over_token_borders_ends_and_is_not_shown) {
  Served served;
  Json body{
      {"prompt", "abc"}, {"max_tokens", 30}, {"temperature", 0}, {"ignore_eos", true}, {"logit_bias", {{"120", 100}}}};
  EXPECT_EQ(served.ask("/v1/completions", body).second["choices"][0]["text"], std::string(30, 'x'));
  body["stop"] = "xxx";
  const Json stopped = served.ask("/v1/completions", body).second;
  EXPECT_EQ(stopped["choices"][0]["text"], "");
  EXPECT_EQ(stopped["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(stopped["choices"][0]["stop_reason"], "xxx");
  EXPECT_EQ(stopped["usage"]["completion_tokens"], 3);
}

TEST(Api, echo_scores_a_prompt_without_new_tokens) {
  Served served;
  const auto [status, json] = served.ask(
      "/v1/completions", {{"prompt", "abcd"}, {"echo", true}, {"logprobs", 1}, {"max_tokens", 0}, {"temperature", 0}});
  ASSERT_EQ(status, 200) << json;
  EXPECT_EQ(json["choices"][0]["text"], "abcd");
  const Json& scores = json["choices"][0]["logprobs"];
  EXPECT_EQ(scores["tokens"], Json({"a", "b", "c", "d"}));
  EXPECT_TRUE(scores["token_logprobs"][0].is_null());
  EXPECT_LT(scores["token_logprobs"][1].get<double>(), 0);
  EXPECT_EQ(scores["text_offset"], Json({0, 1, 2, 3}));
}

TEST(Api, each_wrong_request_is_refused_by_name) {
  Served served;
  struct Case {
    Json body;
    int status;
    const char *param, *message;
  };
  const Json hi = {{{"role", "user"}, {"content", "Hi"}}};
  for (const Case& each : std::vector<Case>{
           {{{"messages", hi}, {"temprature", 1}}, 400, "temprature", "did you mean \"temperature\""},
           {{{"messages", hi}, {"temperature", "hot"}}, 400, "temperature", "a number from 0 to 2"},
           {{{"messages", hi}, {"n", 0}}, 400, "n", "from 1 to 128"},
           {{{"messages", hi}, {"model", "other"}}, 404, "model", "but \"tiny\""},
           {{{"messages", hi}, {"max_tokens", 90}}, 400, "messages", "the context has 96 tokens"},
           {{{"messages", hi}, {"tools", {{{"type", "function"}}}}}, 400, "tools[0].function", "an object"},
           {{{"messages", hi}, {"tools", {{{"type", "function"}, {"function", {{"name", "f"}}}}}}},
            400,
            "tools",
            "--tool-call-parser"},
           {{{"messages", hi}, {"tool_choice", "required"}}, 400, "tool_choice", "tools beside it"},
           {{{"messages", hi}, {"response_format", {{"type", "xml"}}}}, 400, "response_format.type", "json_schema"},
           {{{"messages", hi},
             {"response_format",
              {{"type", "json_schema"}, {"json_schema", {{"schema", {{"type", "array"}, {"uniqueItems", true}}}}}}}},
            400,
            "response_format.json_schema.schema",
            "the keyword \"uniqueItems\""},
           {{{"messages", hi}, {"guided_regex", "a("}}, 400, "guided_regex", "no ) for a ("},
           {{{"messages", hi}, {"guided_grammar", "root ::= a\na ::= a \"b\" | \"c\""}},
            400,
            "guided_grammar",
            "rule \"a\", line 2, column 1: it is itself before"},
           {{{"messages", hi}, {"structured_outputs", {{"grammar", 1}}}},
            400,
            "structured_outputs.grammar",
            "a grammar, as text"},
           {{{"messages", hi}, {"guided_regex", "a"}, {"guided_choice", {"a"}}},
            400,
            "guided_choice",
            "nothing beside guided_regex"},
           {{{"messages", hi}, {"stream_options", {{"include_usage", true}}}}, 400, "stream_options", "stream"},
           {{{"messages", hi}, {"logit_bias", {{"900", 1}}}}, 400, "logit_bias", "token ids"},
           {{{"messages", hi}, {"stop", {"a", ""}}}, 400, "stop", "none of them empty"},
           {{{"messages", {{{"content", "Hi"}}}}}, 400, "messages", "has no \"role\""},
           {{{"messages", Json::array()}}, 400, "messages", "at least one"}}) {
    const auto [status, json] = served.ask("/v1/chat/completions", each.body);
    EXPECT_EQ(status, each.status) << json;
    EXPECT_EQ(json["error"]["param"], each.param);
    EXPECT_THAT(json["error"]["message"].get<std::string>(), HasSubstr(each.message));
  }
  EXPECT_EQ(served.send(post("/v1/completions", "{\"prompt\": ")).first, 400);
  EXPECT_EQ(served.send(post("/v1/completions", std::string(1000, '['))).first, 400);
  EXPECT_EQ(served.send(post("/v1/completion", "{}")).first, 404);
  EXPECT_EQ(served.send("GET /v1/completions HTTP/1.1\r\n\r\n").first, 405);
  EXPECT_EQ(served.send("POST /v1/completions HTTP/1.1\r\nContent-Type: text/xml\r\nContent-Length: 2\r\n\r\n{}").first,
            415);
  EXPECT_EQ(served.loop.counts().running + served.loop.counts().waiting, 0);
}

TEST(Api, a_client_that_goes_frees_its_place_and_too_many_are_told_to_wait) {
  Served served({.capacity = 4000, .sequences = 1}, 1);
  const Json endless{{"prompt", "a"}, {"max_tokens", 3990}, {"ignore_eos", true}, {"stream", true}};
  Client runs(served.serving.port()), waits(served.serving.port());
  runs.send(post("/v1/completions", endless.dump()));
  EXPECT_THAT(runs.read_to("data: "), HasSubstr("200 OK"));
  waits.send(post("/v1/completions", endless.dump()));
  EXPECT_TRUE(eventually([&] { return served.loop.counts().waiting == 1; }));
  Client refused(served.serving.port());
  refused.send(post("/v1/completions", endless.dump()));
  EXPECT_THAT(refused.read_to("}}"), AllOf(HasSubstr("HTTP/1.1 429 "), HasSubstr("Retry-After: 1")));
  runs.reset();
  EXPECT_THAT(waits.read_to("data: "), HasSubstr("200 OK"));
  waits.close_half();
  EXPECT_TRUE(eventually([&] { return served.loop.idle(); }));
  Client watches(served.serving.port());
  watches.send("GET /metrics HTTP/1.1\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(watches.read_all(),
              AllOf(HasSubstr("nought:num_requests_running{model_name=\"tiny\"} 0\n"),
                    HasSubstr("nought:request_success_total{model_name=\"tiny\",finished_reason=\"abort\"} 2\n"),
                    HasSubstr("nought:spec_decode_num_accepted_tokens_total{model_name=\"tiny\"} 0\n"),
                    HasSubstr("nought:time_to_first_token_seconds_count{model_name=\"tiny\"} 2\n")));
}

TEST(Api, a_server_that_stops_says_so_and_ends_streams_with_an_error) {
  Served served({.capacity = 4000, .sequences = 1});
  EXPECT_EQ(served.send("GET /health HTTP/1.1\r\n\r\n").first, 200);
  Client runs(served.serving.port());
  runs.send(post("/v1/completions", R"({"prompt": "a", "max_tokens": 3990, "ignore_eos": true, "stream": true})"));
  runs.read_to("data: ");
  served.api.stop_accepting();
  EXPECT_EQ(served.send("GET /health HTTP/1.1\r\n\r\n").first, 503);
  EXPECT_EQ(served.ask("/v1/completions", {{"prompt", "a"}}).first, 503);
  served.loop.stop();
  EXPECT_THAT(runs.read_to("0\r\n\r\n"), HasSubstr("{\"error\":{\"message\":\"the server stops"));
}

TEST(Api, a_request_behind_the_end_of_computing_is_answered) {
  Served served;
  served.loop.stop();
  const auto [status, json] = served.ask("/v1/completions", {{"prompt", "a"}, {"max_tokens", 1}});
  EXPECT_EQ(status, 429) << json;
}

TEST(Api, models_tokens_and_keys) {
  Served served({.capacity = 96, .sequences = 1}, 1, {.keys = {"first", "second"}, .cors = "*"});
  const auto with_key = [&](const std::string& path, const std::string& key) {
    return served.send("GET " + path + " HTTP/1.1\r\nAuthorization: Bearer " + key + "\r\n\r\n");
  };
  EXPECT_EQ(with_key("/v1/models", "third").first, 401);
  EXPECT_EQ(with_key("/v1/models", "").first, 401);
  EXPECT_EQ(served.send("GET /v1/models HTTP/1.1\r\n\r\n").first, 401);
  EXPECT_EQ(served.send("GET /health HTTP/1.1\r\n\r\n").first, 200);
  EXPECT_EQ(served.send("GET / HTTP/1.1\r\n\r\n").first, 200);
  EXPECT_EQ(with_key("/v1/models", "second").second["data"][0]["id"], "tiny");
  EXPECT_EQ(with_key("/v1/models/tiny", "first").second["max_model_len"], 96);
  EXPECT_EQ(with_key("/v1/models/other", "first").first, 404);
  const std::string key = "Authorization: Bearer first\r\n";
  const auto tokens = served.send(post("/tokenize", R"({"prompt": "ab"})", key)).second;
  EXPECT_EQ(tokens["tokens"], Json({97, 98}));
  EXPECT_EQ(served.send(post("/detokenize", R"({"tokens": [97, 98]})", key)).second["prompt"], "ab");
  Client browser(served.serving.port());
  browser.send("OPTIONS /v1/models HTTP/1.1\r\n\r\n");
  EXPECT_THAT(browser.read_to("\r\n\r\n"), HasSubstr("Access-Control-Allow-Origin: *"));
}

}  // namespace
}  // namespace nought::api_test
