#include "nought/serve/api.h"

#include <ctime>
#include <random>

#include "nought/base/text.h"
#include "nought/serve/chat_page.h"
#include "nought/serve/embeddings.h"
#include "nought/serve/generation_request.h"
#include "nought/serve/json_fields.h"
#include "nought/serve/messages_api.h"
#include "nought/serve/responses_api.h"

namespace nought {

namespace {

constexpr const char *kJson = "application/json", *kMessages = "/v1/messages", *kResponses = "/v1/responses";

/// Whether two texts are equal, in a time that does not tell where they differ.
bool equal_in_constant_time(std::string_view a, std::string_view b) {
  unsigned difference = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < a.size(); ++i)
    difference |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b.empty() ? 0 : b[i % b.size()]);
  return difference == 0;
}

/// Adds headers to every answer.
class WithHeaders final : public HttpReply {
 public:
  WithHeaders(std::shared_ptr<HttpReply> reply, Headers headers)
      : reply_(std::move(reply)), headers_(std::move(headers)) {}
  void send(int status, std::string_view type, std::string body, const Headers& headers) override {
    reply_->send(status, type, std::move(body), joined(headers));
  }
  void begin(std::string_view type, const Headers& headers) override { reply_->begin(type, joined(headers)); }
  void write(std::string piece) override { reply_->write(std::move(piece)); }
  void finish() override { reply_->finish(); }
  void on_gone(std::function<void()> gone) override { reply_->on_gone(std::move(gone)); }

 private:
  Headers joined(const Headers& more) const {
    Headers all = headers_;
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  std::shared_ptr<HttpReply> reply_;
  Headers headers_;
};

struct Route {
  const char *method, *path;
};
constexpr Route kRoutes[]{{"GET", "/"},
                          {"GET", "/health"},
                          {"GET", "/metrics"},
                          {"GET", "/v1/models"},
                          {"POST", "/v1/completions"},
                          {"POST", "/v1/chat/completions"},
                          {"POST", "/v1/embeddings"},
                          {"POST", "/v1/responses"},
                          {"POST", "/v1/messages"},
                          {"POST", "/v1/messages/count_tokens"},
                          {"POST", "/tokenize"},
                          {"POST", "/detokenize"}};

void check_route(const HttpRequest& request) {
  std::vector<std::string> paths;
  for (const Route& route : kRoutes) {
    paths.emplace_back(route.path);
    if (request.path != route.path && !(request.path.starts_with("/v1/models/") && paths.back() == "/v1/models"))
      continue;
    if (request.method == route.method || (request.method == "HEAD" && std::string(route.method) == "GET")) return;
    throw ApiError(405, fmt::format("{} takes {}, found {}", route.path, route.method, request.method));
  }
  const std::string path = one_line(request.path.substr(0, 80));
  throw ApiError(404, fmt::format("there is no {} here{}", path, did_you_mean(path, paths)));
}

}  // namespace

Api::Api(const ServedModel& model, EngineLoop& engine, int64_t cache_tokens, ApiOptions options)
    : model_(model),
      engine_(engine),
      cache_tokens_(cache_tokens),
      options_(std::move(options)),
      masks_(model.tokenizer),
      next_number_((uint64_t{std::random_device{}()} << 32) | std::random_device{}()) {}

void Api::handle(const HttpRequest& request, const std::shared_ptr<HttpReply>& plain) {
  std::shared_ptr<HttpReply> reply = plain;
  if (!options_.cors.empty())
    reply = std::make_shared<WithHeaders>(
        plain, HttpReply::Headers{
                   {"Access-Control-Allow-Origin", options_.cors},
                   {"Access-Control-Allow-Headers", "authorization, content-type, x-api-key, anthropic-version"},
                   {"Access-Control-Allow-Methods", "GET, POST, OPTIONS"}});
  if (request.path.starts_with(kMessages)) reply = std::make_shared<MessagesReply>(reply);
  if (request.path == kResponses) reply = std::make_shared<ResponseReply>(reply);
  if (request.method == "OPTIONS" && !options_.cors.empty()) return reply->send(204, "text/plain", "", {});
  try {
    route(request, reply);
  } catch (const ApiError& error) {
    HttpReply::Headers headers;
    if (error.status() == 429 || error.status() == 503) headers.emplace_back("Retry-After", "1");
    if (error.status() == 401) headers.emplace_back("WWW-Authenticate", "Bearer");
    reply->send(error.status(), kJson, error.body(), headers);
  } catch (const ConfigError& error) {
    reply->send(400, kJson, error_body(400, error.what()), {});
  }
}

void Api::check_key(const HttpRequest& request) const {
  if (options_.keys.empty()) return;
  const std::string_view given = request.authorization;
  bool known = false;
  for (const std::string& key : options_.keys)
    known |= given.starts_with("Bearer ") && equal_in_constant_time(given.substr(7), key);
  if (!known) throw ApiError(401, "this server asks for a key: Authorization: Bearer KEY", {}, "invalid_api_key");
}

void Api::route(const HttpRequest& request, const std::shared_ptr<HttpReply>& reply) {
  check_route(request);
  if (request.path == "/health") {
    if (stopping_) throw ApiError(503, "the server is stopping");
    return reply->send(200, kJson, R"({"status":"ok"})", {});
  }
  if (request.path == "/") {  // it holds no secret, and asks for the key itself
    ChatPage page = make_chat_page();
    return reply->send(200, "text/html; charset=utf-8", std::move(page.html),
                       {{"Content-Security-Policy", page.policy},
                        {"X-Content-Type-Options", "nosniff"},
                        {"Referrer-Policy", "no-referrer"},
                        {"Cache-Control", "no-store"}});
  }
  check_key(request);
  if (request.path == "/metrics")
    return reply->send(200, "text/plain; version=0.0.4", metrics_.page(model_.name, engine_.counts(), cache_tokens_),
                       {});
  if (request.path == "/v1/models") return reply->send(200, kJson, dump(models()), {});
  if (request.path.starts_with("/v1/models/")) {
    const int32_t adapter = model_named(request.path.substr(11), model_);
    return reply->send(200, kJson, dump(models()["data"][static_cast<size_t>(adapter + 1)]), {});
  }
  const std::string type = lower_case(request.content_type);
  if (!type.empty() && !type.starts_with(kJson))
    throw ApiError(415, fmt::format("Content-Type: expected {}, found {}", kJson, one_line(type.substr(0, 80))));
  if (stopping_) throw ApiError(503, "the server is stopping");
  if (request.path == "/tokenize") return reply->send(200, kJson, tokenize(request), {});
  if (request.path == "/detokenize") return reply->send(200, kJson, detokenize(request), {});
  if (request.path == "/v1/embeddings") return embed(request, reply);
  if (request.path.starts_with(kMessages)) return answer_messages(request, reply);
  if (request.path == kResponses) {
    GenerationRequest read = read_chat_completion(dump(chat_of_response(request.body)), model_, next_number_);
    static_cast<ResponseReply&>(*reply).set_request(parse_body(request.body));  // handle() has made it
    return generate(std::move(read), reply);
  }
  const bool chat = request.path == "/v1/chat/completions";
  generate(chat ? read_chat_completion(request.body, model_, next_number_)
                : read_completion(request.body, model_, next_number_),
           reply);
}

void Api::answer_messages(const HttpRequest& request, const std::shared_ptr<HttpReply>& reply) {
  const bool counts = request.path != kMessages;
  OrderedJson chat = chat_of_messages(request.body, counts);
  GenerationRequest read = read_chat_completion(dump(chat), model_, next_number_);
  const int64_t tokens = std::ssize(read.prompts[0]);
  if (counts) return reply->send(200, kJson, dump({{"input_tokens", tokens}}), {});
  static_cast<MessagesReply&>(*reply).set_prompt_tokens(tokens);  // handle() has made it
  generate(std::move(read), reply);
}

OrderedJson Api::models() const {
  const auto entry = [&](const std::string& id) {
    return OrderedJson{{"id", id},
                       {"object", "model"},
                       {"created", model_.created},
                       {"owned_by", "nought"},
                       {"max_model_len", model_.max_context}};
  };
  OrderedJson all = OrderedJson::array({entry(model_.name)});
  for (const ServedAdapter& each : model_.adapters) {
    all.push_back(entry(each.name));
    all.back()["root"] = each.folder;
    all.back()["parent"] = model_.name;
  }
  return {{"object", "list"}, {"data", std::move(all)}};
}

std::string Api::tokenize(const HttpRequest& request) const {
  const OrderedJson body = parse_body(request.body);
  JsonFields fields(body);
  std::vector<int32_t> ids;
  fields.ignore({"model"});
  if (fields.find("messages")) {
    fields.ignore({"tools", "chat_template_kwargs"});
    ids = read_messages(body, model_);
  } else {
    const auto text = fields.text("prompt");
    if (!text) fields.wrong("prompt", "a string, or \"messages\"");
    if (fields.boolean("add_special_tokens", true))
      ids.assign(model_.tokenizer.prefix().begin(), model_.tokenizer.prefix().end());
    model_.tokenizer.encode(*text, ids);
  }
  fields.finish();
  return dump({{"count", ids.size()}, {"max_model_len", model_.max_context}, {"tokens", ids}});
}

std::string Api::detokenize(const HttpRequest& request) const {
  const OrderedJson body = parse_body(request.body);
  JsonFields fields(body);
  fields.ignore({"model"});
  const OrderedJson* tokens = fields.find("tokens");
  fields.finish();
  if (!tokens || !tokens->is_array()) fields.wrong("tokens", "a list of token ids");
  std::vector<int32_t> ids;
  for (const OrderedJson& id : *tokens) {
    if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() >= model_.vocab_size)
      fields.wrong("tokens", fmt::format("token ids from 0 to {}", model_.vocab_size - 1));
    ids.push_back(id.get<int32_t>());
  }
  return dump({{"prompt", model_.tokenizer.decode(ids)}});
}

void Api::generate(GenerationRequest read, const std::shared_ptr<HttpReply>& reply) {
  read.answer.id = fmt::format("{}-{:016x}", read.answer.chat ? "chatcmpl" : "cmpl", next_number_++);
  read.answer.created = std::time(nullptr);
  std::shared_ptr<TokenMasks> masks;
  if (read.constraint.constrains()) masks = masks_.of(read.constraint, read.answer.parser);
  const auto answer = std::make_shared<Answer>(read.answer, reply, model_.tokenizer, metrics_);
  EngineLoop::Requests requests;
  for (const std::vector<int32_t>& prompt : read.prompts)
    for (int64_t choice = 0; choice < read.choices; ++choice) {
      InferenceRequest each = read.inference;
      each.prompt = prompt;
      if (masks) each.constraint.emplace(masks);
      each.sampling.seed += static_cast<uint64_t>(choice);
      requests.emplace_back(std::move(each), answer->add_choice(prompt, choice == 0));
    }
  submit(std::move(requests), reply);
}

void Api::embed(const HttpRequest& request, const std::shared_ptr<HttpReply>& reply) {
  const EmbeddingRequest read = read_embedding_request(request.body, model_);
  const auto listeners = embedding_listeners(read, model_, reply, metrics_);
  EngineLoop::Requests requests;
  for (size_t i = 0; i < listeners.size(); ++i)
    requests.emplace_back(
        InferenceRequest{.prompt = read.prompts[i], .pooling = model_.pooling, .adapter = read.adapter}, listeners[i]);
  submit(std::move(requests), reply);
}

void Api::submit(EngineLoop::Requests requests, const std::shared_ptr<HttpReply>& reply) {
  const auto tickets = engine_.submit(std::move(requests));
  if (tickets.empty())
    throw ApiError(429, "too many requests wait already: try again later", {}, "rate_limit_exceeded");
  reply->on_gone([&engine = engine_, tickets] {
    for (const auto& ticket : tickets) engine.cancel(ticket);
  });
}

}  // namespace nought
