#include "nought/serve/generation_request.h"

#include <algorithm>
#include <charconv>

#include <fmt/ranges.h>

#include "nought/base/text.h"
#include "nought/chat/conversation.h"
#include "nought/serve/json_fields.h"

namespace nought {

namespace {

constexpr int64_t kMostChoices = 128, kMostStops = 16, kMostPrompts = 2048, kMostNewTokens = int64_t{1} << 24;

std::vector<std::string> read_stops(JsonFields& fields) {
  const OrderedJson* value = fields.find("stop");
  std::vector<std::string> stops;
  if (!value) return stops;
  const OrderedJson list = value->is_string() ? OrderedJson::array({*value}) : *value;
  const bool fits = list.is_array() && std::ssize(list) <= kMostStops &&
                    std::all_of(list.begin(), list.end(), [](const OrderedJson& each) {
                      return each.is_string() && !each.get_ref<const std::string&>().empty();
                    });
  if (!fits) fields.wrong("stop", fmt::format("a string, or a list of at most {}, none of them empty", kMostStops));
  for (const OrderedJson& each : list) stops.push_back(each.get<std::string>());
  return stops;
}

std::vector<std::pair<int32_t, float>> read_logit_bias(JsonFields& fields, int64_t vocab_size) {
  std::vector<std::pair<int32_t, float>> biases;
  const OrderedJson* value = fields.find("logit_bias");
  if (!value) return biases;
  if (!value->is_object()) fields.wrong("logit_bias", "an object of token ids and numbers");
  for (const auto& [key, bias] : value->items()) {
    int32_t id = -1;
    const auto [stop, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || stop != key.data() + key.size() || id < 0 || id >= vocab_size || !bias.is_number() ||
        std::abs(bias.get<double>()) > 100)
      fields.wrong("logit_bias", fmt::format("token ids from 0 to {} with numbers from -100 to 100", vocab_size - 1));
    biases.emplace_back(id, bias.get<float>());
  }
  return biases;
}

void read_sampling(JsonFields& fields, const ServedModel& model, GenerationRequest& request, uint64_t seed) {
  SamplingParameters& sampling = request.inference.sampling;
  sampling = model.sampling;
  const auto take = [&](const char* name, double least, double most, double& into) {
    if (const auto given = fields.number(name, least, most)) into = *given;
  };
  take("temperature", 0, 2, sampling.temperature);
  take("top_p", 0, 1, sampling.top_p);
  if (sampling.top_p == 0) sampling.top_p = 1e-9;  // the likeliest alone
  take("min_p", 0, 1, sampling.min_p);
  take("frequency_penalty", -2, 2, sampling.frequency_penalty);
  take("presence_penalty", -2, 2, sampling.presence_penalty);
  take("repetition_penalty", 0.01, 100, sampling.repetition_penalty);
  if (const auto top_k = fields.integer("top_k", -1, model.vocab_size)) sampling.top_k = std::max<int64_t>(*top_k, 0);
  sampling.logit_bias = read_logit_bias(fields, model.vocab_size);
  const auto given = fields.integer("seed", std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max());
  sampling.seed = given ? static_cast<uint64_t>(*given) : seed;
}

/// What both bodies have. `limit`: what the request names its most new tokens.
void read_common(JsonFields& fields, const ServedModel& model, GenerationRequest& request, uint64_t seed) {
  request.inference.adapter = read_model(fields, model);
  request.answer.model = model.name_of(request.inference.adapter);
  read_sampling(fields, model, request, seed);
  request.choices = fields.integer("n", 1, kMostChoices).value_or(1);
  request.answer.stops = read_stops(fields);
  request.answer.named_stops = request.answer.stops.size();
  request.answer.stream = fields.boolean("stream", false);
  if (const OrderedJson* value = fields.find("stream_options")) {
    if (!request.answer.stream) fields.wrong("stream_options", "nothing without \"stream\": true");
    JsonFields options(*value, "stream_options");
    request.answer.include_usage = options.boolean("include_usage", false);
    options.finish();
  }
  request.inference.min_new_tokens = fields.integer("min_tokens", 0, model.max_context).value_or(0);
  if (!fields.boolean("ignore_eos", false))
    request.inference.stop_ids = request.answer.chat ? model.chat_stop_ids : model.text_stop_ids;
  fields.ignore({"user", "metadata", "prompt_cache_key", "safety_identifier"});
  if (const auto tier = fields.text("service_tier"); tier && *tier != "auto" && *tier != "default")
    fields.wrong("service_tier", "\"auto\"");
  read_guided(fields, request.constraint);
  fields.refuse({"store"});
}

/// Checks that prompts and what they may generate fit; without a number, the reply may fill the context.
void set_length(GenerationRequest& request, const std::optional<int64_t>& asked, const std::string& prompt_field,
                const ServedModel& model) {
  size_t longest = 0;
  for (const auto& prompt : request.prompts) longest = std::max(longest, prompt.size());
  const int64_t room = model.max_context - static_cast<int64_t>(longest);
  const int64_t most = asked.value_or(std::max<int64_t>(room, 1));
  if (most > room)
    throw ApiError(400,
                   fmt::format("the context has {} tokens: {} of the prompt and {} new ones exceed it",
                               model.max_context, longest, most),
                   prompt_field, "context_length_exceeded");
  request.inference.max_new_tokens = most;
  if (request.inference.min_new_tokens > most)
    throw ApiError(400,
                   fmt::format("min_tokens: at most max_tokens, {}, found {}", most, request.inference.min_new_tokens),
                   "min_tokens");
}

std::vector<int32_t> encode_prompt(const std::string& text, const ServedModel& model, const std::string& field) {
  std::vector<int32_t> ids(model.tokenizer.prefix().begin(), model.tokenizer.prefix().end());
  model.tokenizer.encode(text, ids);
  if (ids.empty())
    throw ApiError(400, field + ": the text is empty, and the model has no token that begins one", field);
  return ids;
}

std::vector<int32_t> read_ids(const OrderedJson& list, const ServedModel& model, const std::string& field) {
  std::vector<int32_t> ids;
  for (const OrderedJson& id : list) {
    if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() >= model.vocab_size)
      throw ApiError(400,
                     fmt::format("{}: {} is not a token of the model (0 to {})", field, dump(id), model.vocab_size - 1),
                     field);
    ids.push_back(id.get<int32_t>());
  }
  if (ids.empty()) throw ApiError(400, field + ": the list of tokens is empty", field);
  return ids;
}

/// Templates take the arguments of a call as an object, and the API has them as text.
void parse_arguments(OrderedJson& messages) {
  for (OrderedJson& message : messages) {
    if (!message.is_object()) continue;
    if (message.value("role", OrderedJson()) == "developer") message["role"] = "system";
    const auto calls = message.find("tool_calls");
    if (calls == message.end() || !calls->is_array()) continue;
    for (OrderedJson& call : *calls) {
      if (!call.is_object() || !call.contains("function") || !call["function"].is_object()) continue;
      OrderedJson& function = call["function"];
      if (!function.contains("arguments") || !function["arguments"].is_string()) continue;
      OrderedJson parsed = OrderedJson::parse(function["arguments"].get<std::string>(), nullptr, false);
      if (parsed.is_object()) function["arguments"] = std::move(parsed);
    }
  }
}

OrderedJson without_tools(OrderedJson body) {
  body.erase("tools");
  return body;
}

/// Whether the prompt ends within thinking, which the reply goes on with.
bool opens_thinking(std::span<const int32_t> prompt, const ServedModel& model) {
  if (model.reasoning_form == ReasoningForm::none) return false;
  constexpr size_t kLast = 32;  // tokens; the marker may be spelt in single bytes
  const std::string end = model.tokenizer.decode(prompt.last(std::min(prompt.size(), kLast)));
  return std::string_view(end).substr(0, end.find_last_not_of(" \r\n") + 1).ends_with(reply_marker::kThink);
}

}  // namespace

std::vector<std::vector<int32_t>> read_prompts(const OrderedJson& value, const ServedModel& model,
                                               const std::string& field) {
  if (value.is_string()) return {encode_prompt(value.get<std::string>(), model, field)};
  const auto all = [&](auto is) { return std::all_of(value.begin(), value.end(), is); };
  if (!value.is_array() || value.empty() || std::ssize(value) > int64_t{1} << 24)
    throw ApiError(400, field + ": expected a string, strings, token ids, or lists of token ids", field);
  if (all([](const OrderedJson& each) { return each.is_number(); })) return {read_ids(value, model, field)};
  if (std::ssize(value) > kMostPrompts)
    throw ApiError(400, fmt::format("{}: at most {} prompts at once", field, kMostPrompts), field);
  std::vector<std::vector<int32_t>> prompts;
  for (const OrderedJson& each : value) {
    if (!each.is_string() && !each.is_array())
      throw ApiError(400, field + ": expected strings alone, or lists of token ids alone", field);
    prompts.push_back(each.is_string() ? encode_prompt(each.get<std::string>(), model, field)
                                       : read_ids(each, model, field));
  }
  return prompts;
}

int32_t model_named(const std::string& name, const ServedModel& model) {
  if (name == model.name) return kNoAdapter;
  std::vector<std::string> names{'"' + model.name + '"'};
  for (size_t i = 0; i < model.adapters.size(); ++i) {
    if (model.adapters[i].name == name) return static_cast<int32_t>(i);
    names.push_back('"' + model.adapters[i].name + '"');
  }
  throw ApiError(
      404, fmt::format("there is no model \"{}\" here, but {}", one_line(name.substr(0, 80)), fmt::join(names, ", ")),
      "model", "model_not_found");
}

int32_t read_model(JsonFields& fields, const ServedModel& model) {
  const auto name = fields.text("model");
  return name ? model_named(*name, model) : kNoAdapter;
}

std::vector<int32_t> read_messages(const OrderedJson& body, const ServedModel& model) {
  if (!model.chat) throw ApiError(400, "messages: " + model.no_chat, "messages");
  const auto found = body.find("messages");
  if (found == body.end() || !found->is_array() || found->empty())
    throw ApiError(400, "messages: expected a list of at least one message", "messages");
  OrderedJson messages = *found;
  parse_arguments(messages);
  try {
    const ChatRecord record = read_conversation(messages);
    return model.chat->prompt(record.messages, template_variables(body));
  } catch (const ConfigError& error) {
    throw ApiError(400, fmt::format("messages: {}", error.what()), "messages");
  }
}

GenerationRequest read_completion(std::string_view body, const ServedModel& model, uint64_t seed) {
  const OrderedJson json = parse_body(body);
  JsonFields fields(json);
  GenerationRequest request;
  const OrderedJson* prompt = fields.find("prompt");
  if (!prompt) fields.wrong("prompt", "a text to continue");
  read_common(fields, model, request, seed);
  request.answer.echo = fields.boolean("echo", false);
  request.inference.likeliest = fields.integer("logprobs", 0, 20);
  request.answer.log_probabilities = request.inference.likeliest.has_value();
  request.inference.scores_prompt = request.answer.echo && request.answer.log_probabilities;
  const auto most = fields.integer("max_tokens", request.answer.echo ? 0 : 1, kMostNewTokens);
  if (const auto best_of = fields.integer("best_of", 1, kMostChoices); best_of && *best_of != request.choices)
    fields.wrong("best_of", "the number of n: more is not supported");
  fields.refuse({"suffix"});
  fields.finish();
  request.prompts = read_prompts(*prompt, model);
  set_length(request, most.value_or(16), "prompt", model);
  return request;
}

GenerationRequest read_chat_completion(std::string_view body, const ServedModel& model, uint64_t seed) {
  const OrderedJson json = parse_body(body);
  JsonFields fields(json);
  GenerationRequest request{.answer = {.chat = true}};
  fields.find("messages");
  read_common(fields, model, request, seed);
  auto most = fields.integer("max_tokens", 1, kMostNewTokens);
  if (const auto newer = fields.integer("max_completion_tokens", 1, kMostNewTokens)) most = newer;
  request.answer.log_probabilities = fields.boolean("logprobs", false);
  const auto likeliest = fields.integer("top_logprobs", 0, 20);
  if (likeliest && !request.answer.log_probabilities)
    fields.wrong("top_logprobs", "nothing without \"logprobs\": true");
  if (request.answer.log_probabilities) request.inference.likeliest = likeliest.value_or(0);
  if (const OrderedJson* more = fields.find("chat_template_kwargs"); more && !more->is_object())
    fields.wrong("chat_template_kwargs", "an object");
  read_response_format(fields, request.constraint);
  read_tools(fields, model, request.constraint, request.answer.parser);
  request.answer.parallel_calls = request.constraint.parallel;
  fields.refuse({"functions", "function_call", "audio", "modalities", "prediction", "web_search_options",
                 "reasoning_effort", "verbosity", "moderation", "documents"});
  fields.finish();
  request.answer.stops.insert(request.answer.stops.end(), model.chat_stops.begin(), model.chat_stops.end());
  request.prompts = {read_messages(request.answer.parser.tools == ToolForm::none ? without_tools(json) : json, model)};
  request.answer.parser.reasoning = model.reasoning_form;
  request.answer.parser.thinks = opens_thinking(request.prompts[0], model);
  set_length(request, most, "messages", model);
  return request;
}

}  // namespace nought
