#include "nought/serve/responses_api.h"

#include "nought/serve/json_fields.h"

namespace nought {

namespace {

/// The text of a string, or of parts of one of these types.
std::string parts_text(const OrderedJson& value, const std::string& where) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array()) throw ApiError(400, where + ": expected a string or parts of text", where);
  std::string text;
  for (size_t i = 0; i < value.size(); ++i) {
    JsonFields part(value[i], fmt::format("{}[{}]", where, i));
    const std::string type = part.text("type").value_or("");
    if (type != "input_text" && type != "output_text" && type != "reasoning_text" && type != "summary_text")
      part.wrong("type", "\"input_text\" or \"output_text\": others are not supported");
    text += part.text("text").value_or("");
    part.ignore({"annotations", "logprobs"});
    part.finish();
  }
  return text;
}

/// Appends the message of an item; calls and thinking join the assistant's message beside them.
void append_item(const OrderedJson& value, const std::string& where, std::string& thinking, OrderedJson& messages) {
  JsonFields item(value, where);
  const std::string type = item.text("type").value_or("message");
  item.ignore({"id", "status"});
  const auto assistant = [&]() -> OrderedJson& {
    if (messages.empty() || messages.back()["role"] != "assistant" || !thinking.empty())
      messages.push_back({{"role", "assistant"}, {"content", nullptr}});
    if (!thinking.empty()) messages.back()["reasoning_content"] = std::exchange(thinking, {});
    return messages.back();
  };
  if (type == "message") {
    const std::string role = item.text("role").value_or("");
    if (role != "user" && role != "assistant" && role != "system" && role != "developer")
      item.wrong("role", "\"user\", \"assistant\", \"system\" or \"developer\"");
    const OrderedJson* content = item.find("content");
    if (!content) item.wrong("content", "a string or parts");
    const std::string text = parts_text(*content, item.param("content"));
    if (role != "assistant" || thinking.empty()) messages.push_back({{"role", role}, {"content", text}});
    if (role == "assistant" && !thinking.empty()) assistant()["content"] = text;
    item.ignore({"phase"});
  } else if (type == "function_call") {
    const OrderedJson call{
        {"id", item.text("call_id").value_or("")},
        {"type", "function"},
        {"function", {{"name", item.text("name").value_or("")}, {"arguments", item.text("arguments").value_or("{}")}}}};
    assistant()["tool_calls"].push_back(call);
  } else if (type == "function_call_output") {
    const OrderedJson* output = item.find("output");
    if (!output) item.wrong("output", "a string or parts");
    messages.push_back({{"role", "tool"},
                        {"tool_call_id", item.text("call_id").value_or("")},
                        {"content", parts_text(*output, item.param("output"))}});
  } else if (type == "reasoning") {
    const OrderedJson* content = item.find("content");
    if (content) thinking += parts_text(*content, item.param("content"));
    item.ignore({"summary", "encrypted_content"});
  } else {
    item.wrong("type", "\"message\", \"function_call\", \"function_call_output\" or \"reasoning\"");
  }
  item.finish();
}

OrderedJson messages_of(JsonFields& fields) {
  OrderedJson messages = OrderedJson::array();
  if (const auto instructions = fields.text("instructions"))
    messages.push_back({{"role", "system"}, {"content", *instructions}});
  const OrderedJson* input = fields.find("input");
  if (!input || !(input->is_string() || (input->is_array() && !input->empty())))
    fields.wrong("input", "a text, or a list of at least one item");
  std::string thinking;
  if (input->is_string())
    messages.push_back({{"role", "user"}, {"content", *input}});
  else
    for (size_t i = 0; i < input->size(); ++i)
      append_item((*input)[i], fmt::format("input[{}]", i), thinking, messages);
  return messages;
}

void read_functions(JsonFields& fields, OrderedJson& chat) {
  if (const OrderedJson* tools = fields.find("tools")) {
    if (!tools->is_array()) fields.wrong("tools", "a list");
    chat["tools"] = OrderedJson::array();
    for (size_t i = 0; i < tools->size(); ++i) {
      JsonFields tool((*tools)[i], fmt::format("tools[{}]", i));
      if (tool.text("type") != "function") tool.wrong("type", "\"function\": the server has no tools");
      OrderedJson function;
      for (const char* name : {"name", "description", "parameters", "strict"})
        if (const OrderedJson* value = tool.find(name)) function[name] = *value;
      tool.finish();
      chat["tools"].push_back({{"type", "function"}, {"function", function}});
    }
  }
  const OrderedJson* choice = fields.find("tool_choice");
  if (!choice) return;
  chat["tool_choice"] = *choice;
  if (!choice->is_object()) return;
  JsonFields parts(*choice, "tool_choice");
  chat["tool_choice"] = {{"type", parts.text("type").value_or("")},
                         {"function", {{"name", parts.text("name").value_or("")}}}};
  parts.finish();
}

void read_text_of(JsonFields& fields, OrderedJson& chat) {
  const OrderedJson* text = fields.find("text");
  if (!text) return;
  JsonFields parts(*text, "text");
  parts.refuse({"verbosity"});
  const OrderedJson* format = parts.find("format");
  parts.finish();
  if (!format) return;
  OrderedJson given = *format;
  if (!given.is_object()) parts.wrong("format", "an object");
  const OrderedJson type = given.value("type", OrderedJson());
  if (type == "json_schema") {
    given.erase("type");
    chat["response_format"] = {{"type", type}, {"json_schema", given}};
  } else {
    chat["response_format"] = given;
  }
}

OrderedJson usage_of(const OrderedJson& usage) {
  return {{"input_tokens", usage["prompt_tokens"]},
          {"input_tokens_details", usage["prompt_tokens_details"]},
          {"output_tokens", usage["completion_tokens"]},
          {"output_tokens_details", usage["completion_tokens_details"]},
          {"total_tokens", usage["total_tokens"]}};
}

OrderedJson text_part(const std::string& text) {
  return {{"type", "output_text"},
          {"text", text},
          {"annotations", OrderedJson::array()},
          {"logprobs", OrderedJson::array()}};
}

}  // namespace

OrderedJson chat_of_response(std::string_view body) {
  const OrderedJson json = parse_body(body);
  JsonFields fields(json);
  OrderedJson chat;
  const auto copy = [&](const char* name, const char* as) {
    if (const OrderedJson* value = fields.find(name)) chat[as] = *value;
  };
  chat["messages"] = messages_of(fields);
  read_functions(fields, chat);
  read_text_of(fields, chat);
  copy("max_output_tokens", "max_tokens");
  for (const char* same :
       {"model", "temperature", "top_p", "stream", "parallel_tool_calls", "service_tier", "top_k", "seed"})
    copy(same, same);
  if (fields.boolean("stream", false)) chat["stream_options"] = {{"include_usage", true}};
  if (const OrderedJson* reasoning = fields.find("reasoning")) {
    JsonFields parts(*reasoning, "reasoning");
    if (const auto effort = parts.text("effort"))
      chat["chat_template_kwargs"] = {{"enable_thinking", *effort != "none"}, {"reasoning_effort", *effort}};
    parts.ignore({"summary", "generate_summary"});
    parts.finish();
  }
  if (const auto truncation = fields.text("truncation"); truncation && *truncation != "disabled")
    fields.wrong("truncation", "\"disabled\"");
  fields.ignore({"user", "metadata", "prompt_cache_key", "safety_identifier", "stream_options", "include"});
  fields.refuse(
      {"store", "background", "previous_response_id", "conversation", "prompt", "max_tool_calls", "top_logprobs"});
  fields.finish();
  return chat;
}

OrderedJson ResponseReply::error_of(int, const OrderedJson& answer) const { return answer; }

OrderedJson ResponseReply::response(const OrderedJson& answer, const OrderedJson& finish) const {
  const std::string id = answer.value("id", "");
  const bool cut = finish == "length";
  const auto given = [&](const char* name, const OrderedJson& otherwise) {
    const auto found = request_.find(name);
    return found == request_.end() ? otherwise : *found;
  };
  OrderedJson response{{"id", "resp_" + id.substr(id.find('-') + 1)},
                       {"object", "response"},
                       {"created_at", answer["created"]},
                       {"status", finish.is_null() ? "in_progress"
                                  : cut            ? "incomplete"
                                                   : "completed"},
                       {"error", nullptr},
                       {"incomplete_details", cut ? OrderedJson{{"reason", "max_output_tokens"}} : OrderedJson()},
                       {"model", answer["model"]},
                       {"output", output_},
                       {"parallel_tool_calls", given("parallel_tool_calls", true)},
                       {"tool_choice", given("tool_choice", "auto")},
                       {"tools", given("tools", OrderedJson::array())},
                       {"store", false},
                       {"truncation", "disabled"}};
  for (const char* name :
       {"instructions", "max_output_tokens", "temperature", "top_p", "text", "reasoning", "metadata"})
    response[name] = given(name, OrderedJson());
  response["usage"] =
      answer.contains("usage") && answer["usage"].is_object() ? usage_of(answer["usage"]) : OrderedJson();
  return response;
}

OrderedJson ResponseReply::whole(const OrderedJson& answer) {
  const OrderedJson& choice = answer["choices"][0];
  const OrderedJson& message = choice["message"];
  // What a stream would have sent makes the same items.
  if (message.contains("reasoning_content")) take_delta({{"reasoning_content", message["reasoning_content"]}});
  if (message["content"].is_string() && message["content"] != "") take_delta({{"content", message["content"]}});
  if (message.contains("tool_calls"))
    for (const OrderedJson& call : message["tool_calls"]) {
      const OrderedJson text{{"function", {{"arguments", call["function"]["arguments"]}}}};
      take_delta({{"tool_calls", OrderedJson::array({call})}});
      take_delta({{"tool_calls", OrderedJson::array({text})}});
    }
  end_item();
  return response(answer, choice["finish_reason"]);
}

void ResponseReply::send_numbered(const std::string& type, OrderedJson fields) {
  if (!request_.value("stream", OrderedJson()).is_boolean() || !request_["stream"].get<bool>()) return;
  fields["sequence_number"] = number_++;
  send_event("response." + type, fields);
}

void ResponseReply::take(const OrderedJson& event) {
  if (event.contains("error")) {
    OrderedJson error = event["error"];
    error.erase("type");
    error["sequence_number"] = number_++;
    return send_event("error", error);
  }
  if (event["choices"].empty()) {
    end_item();
    return send_numbered(finish_ == "length" ? "incomplete" : "completed", {{"response", response(event, finish_)}});
  }
  const OrderedJson& choice = event["choices"][0];
  if (choice["delta"].contains("role")) {
    send_numbered("created", {{"response", response(event, nullptr)}});
    return send_numbered("in_progress", {{"response", response(event, nullptr)}});
  }
  take_delta(choice["delta"]);
  if (!choice["finish_reason"].is_null()) finish_ = choice["finish_reason"];
}

void ResponseReply::take_delta(const OrderedJson& delta) {
  const auto is_open = [&](const char* type) { return open_ && output_.back()["type"] == type; };
  if (delta.contains("reasoning_content")) {
    if (!is_open("reasoning"))
      begin_item({{"type", "reasoning"}, {"summary", OrderedJson::array()}, {"content", OrderedJson::array()}});
    add("reasoning_text.delta", delta["reasoning_content"].get<std::string>());
  } else if (delta.contains("content")) {
    if (!is_open("message"))
      begin_item({{"type", "message"}, {"role", "assistant"}, {"content", OrderedJson::array()}});
    add("output_text.delta", delta["content"].get<std::string>());
  } else if (delta.contains("tool_calls")) {
    const OrderedJson& call = delta["tool_calls"][0];
    if (call.contains("id"))
      return begin_item(
          {{"type", "function_call"}, {"call_id", call["id"]}, {"name", call["function"]["name"]}, {"arguments", ""}});
    add("function_call_arguments.delta", call["function"]["arguments"].get<std::string>());
  }
}

void ResponseReply::begin_item(OrderedJson item) {
  end_item();
  item["id"] = fmt::format("{}_{}",
                           item["type"] == "message"     ? "msg"
                           : item["type"] == "reasoning" ? "rs"
                                                         : "fc",
                           output_.size());
  item["status"] = "in_progress";
  output_.push_back(item);
  open_ = true;
  text_.clear();
  send_numbered("output_item.added", {{"output_index", output_.size() - 1}, {"item", item}});
  if (item["type"] == "message")
    send_numbered(
        "content_part.added",
        {{"item_id", item["id"]}, {"output_index", output_.size() - 1}, {"content_index", 0}, {"part", text_part("")}});
}

void ResponseReply::add(const char* event, const std::string& text) {
  text_ += text;
  OrderedJson fields{{"item_id", output_.back()["id"]}, {"output_index", output_.size() - 1}, {"delta", text}};
  if (output_.back()["type"] != "function_call") fields["content_index"] = 0;
  if (output_.back()["type"] == "message") fields["logprobs"] = OrderedJson::array();
  send_numbered(event, std::move(fields));
}

void ResponseReply::end_item() {
  if (!std::exchange(open_, false)) return;
  OrderedJson& item = output_.back();
  item["status"] = "completed";
  OrderedJson fields{{"item_id", item["id"]}, {"output_index", output_.size() - 1}};
  if (item["type"] == "function_call") {
    item["arguments"] = text_;
    fields.update(OrderedJson{{"name", item["name"]}, {"arguments", text_}});
    send_numbered("function_call_arguments.done", fields);
  } else if (item["type"] == "reasoning") {
    item["content"].push_back({{"type", "reasoning_text"}, {"text", text_}});
    fields.update(OrderedJson{{"content_index", 0}, {"text", text_}});
    send_numbered("reasoning_text.done", fields);
  } else {
    item["content"].push_back(text_part(text_));
    fields["content_index"] = 0;
    OrderedJson part = fields;
    fields.update(OrderedJson{{"text", text_}, {"logprobs", OrderedJson::array()}});
    part["part"] = text_part(text_);
    send_numbered("output_text.done", fields);
    send_numbered("content_part.done", part);
  }
  send_numbered("output_item.done", {{"output_index", output_.size() - 1}, {"item", item}});
}

}  // namespace nought
