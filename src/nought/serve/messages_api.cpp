#include "nought/serve/messages_api.h"

#include <utility>

#include "nought/serve/answer.h"
#include "nought/serve/json_fields.h"

namespace nought {

namespace {

std::string error_type(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 503:
      return "overloaded_error";
    default:
      return status < 500 ? "invalid_request_error" : "api_error";
  }
}

/// The text of a string, or of blocks of text.
std::string text_of(const OrderedJson& value, const std::string& where) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array()) throw ApiError(400, where + ": expected a string or blocks of text", where);
  std::string text;
  for (size_t i = 0; i < value.size(); ++i) {
    JsonFields block(value[i], fmt::format("{}[{}]", where, i));
    if (block.text("type") != "text") block.wrong("type", "\"text\": other blocks are not supported here");
    text += block.text("text").value_or("");
    block.ignore({"cache_control", "citations"});
    block.finish();
  }
  return text;
}

/// Appends a message whose content is blocks: results of tools become messages of their own.
void append_blocks(const std::string& role, const OrderedJson& blocks, const std::string& where,
                   OrderedJson& messages) {
  OrderedJson message{{"role", role}, {"content", nullptr}};
  std::string text, thinking;
  bool any = false;
  OrderedJson calls = OrderedJson::array();
  for (size_t i = 0; i < blocks.size(); ++i) {
    JsonFields block(blocks[i], fmt::format("{}[{}]", where, i));
    const std::string type = block.text("type").value_or("");
    block.ignore({"cache_control", "citations"});
    if (type == "text") {
      text += block.text("text").value_or("");
      any = true;
    } else if (type == "tool_result" && role == "user") {
      const OrderedJson* content = block.find("content");
      messages.push_back({{"role", "tool"},
                          {"tool_call_id", block.text("tool_use_id").value_or("")},
                          {"content", content ? text_of(*content, block.param("content")) : ""}});
      block.boolean("is_error", false);
    } else if (type == "tool_use" && role == "assistant") {
      const OrderedJson* input = block.find("input");
      if (!input || !input->is_object()) block.wrong("input", "an object");
      calls.push_back({{"id", block.text("id").value_or("")},
                       {"type", "function"},
                       {"function", {{"name", block.text("name").value_or("")}, {"arguments", dump(*input)}}}});
    } else if (type == "thinking" && role == "assistant") {
      thinking += block.text("thinking").value_or("");
      block.text("signature");
    } else {
      block.wrong("type", role == "user" ? "\"text\" or \"tool_result\"" : "\"text\", \"thinking\" or \"tool_use\"");
    }
    block.finish();
  }
  if (any || calls.empty()) message["content"] = text;
  if (!calls.empty()) message["tool_calls"] = calls;
  if (!thinking.empty()) message["reasoning_content"] = thinking;
  if (any || !calls.empty() || blocks.empty() || role == "assistant") messages.push_back(std::move(message));
}

OrderedJson read_messages_of(JsonFields& fields) {
  OrderedJson messages = OrderedJson::array();
  if (const OrderedJson* system = fields.find("system"))
    messages.push_back({{"role", "system"}, {"content", text_of(*system, "system")}});
  const OrderedJson* given = fields.find("messages");
  if (!given || !given->is_array() || given->empty()) fields.wrong("messages", "a list of at least one message");
  for (size_t i = 0; i < given->size(); ++i) {
    JsonFields message((*given)[i], fmt::format("messages[{}]", i));
    const std::string role = message.text("role").value_or("");
    if (role != "user" && role != "assistant") message.wrong("role", "\"user\" or \"assistant\"");
    const OrderedJson* content = message.find("content");
    message.finish();
    if (content && content->is_string())
      messages.push_back({{"role", role}, {"content", *content}});
    else if (content && content->is_array())
      append_blocks(role, *content, message.param("content"), messages);
    else
      message.wrong("content", "a string or a list of blocks");
  }
  return messages;
}

void read_tools_of(JsonFields& fields, OrderedJson& chat) {
  if (const OrderedJson* tools = fields.find("tools")) {
    if (!tools->is_array()) fields.wrong("tools", "a list");
    chat["tools"] = OrderedJson::array();
    for (size_t i = 0; i < tools->size(); ++i) {
      JsonFields tool((*tools)[i], fmt::format("tools[{}]", i));
      if (tool.text("type").value_or("custom") != "custom") tool.wrong("type", "\"custom\": the server has no tools");
      OrderedJson function{{"name", tool.text("name").value_or("")}};
      if (const auto description = tool.text("description")) function["description"] = *description;
      if (const OrderedJson* schema = tool.find("input_schema")) function["parameters"] = *schema;
      if (tool.boolean("strict", false)) function["strict"] = true;
      tool.ignore({"cache_control"});
      tool.finish();
      chat["tools"].push_back({{"type", "function"}, {"function", function}});
    }
  }
  const OrderedJson* choice = fields.find("tool_choice");
  if (!choice) return;
  JsonFields parts(*choice, "tool_choice");
  const std::string type = parts.text("type").value_or("");
  const auto name = parts.text("name");
  if (parts.boolean("disable_parallel_tool_use", false)) chat["parallel_tool_calls"] = false;
  parts.finish();
  if (type == "tool" && name)
    chat["tool_choice"] = {{"type", "function"}, {"function", {{"name", *name}}}};
  else if (type == "auto" || type == "none")
    chat["tool_choice"] = type;
  else if (type == "any")
    chat["tool_choice"] = "required";
  else
    parts.wrong("type", "\"auto\", \"any\", \"none\", or \"tool\" with a name");
}

OrderedJson stop_reason(const OrderedJson& finish, const OrderedJson& stop) {
  if (finish == "length") return "max_tokens";
  if (finish == "tool_calls") return "tool_use";
  return stop.is_string() ? "stop_sequence" : "end_turn";
}

OrderedJson input_of(const std::string& arguments) {
  OrderedJson input = OrderedJson::parse(arguments, nullptr, /*allow_exceptions=*/false);
  return input.is_object() ? input : OrderedJson::object();  // a call that was cut
}

std::string message_id(const OrderedJson& answer) {
  const std::string id = answer.value("id", "");
  return "msg_" + id.substr(id.find('-') + 1);
}

}  // namespace

OrderedJson chat_of_messages(std::string_view body, bool counts) {
  const OrderedJson json = parse_body(body);
  JsonFields fields(json);
  OrderedJson chat;
  const auto copy = [&](const char* name, const char* as) {
    if (const OrderedJson* value = fields.find(name)) chat[as] = *value;
  };
  copy("model", "model");
  chat["messages"] = read_messages_of(fields);
  read_tools_of(fields, chat);
  if (const OrderedJson* thinking = fields.find("thinking")) {
    JsonFields parts(*thinking, "thinking");
    const std::string type = parts.text("type").value_or("");
    if (type != "enabled" && type != "disabled" && type != "adaptive")
      parts.wrong("type", "\"enabled\", \"adaptive\" or \"disabled\"");
    parts.ignore({"budget_tokens", "display"});
    parts.finish();
    chat["chat_template_kwargs"] = {{"enable_thinking", type != "disabled"}};
  }
  if (!counts) {
    if (!fields.find("max_tokens")) fields.wrong("max_tokens", "a number: it is required");
    copy("max_tokens", "max_tokens");
    copy("stop_sequences", "stop");
    for (const char* same : {"temperature", "top_p", "top_k", "stream"}) copy(same, same);
    if (fields.boolean("stream", false)) chat["stream_options"] = {{"include_usage", true}};
    fields.ignore({"metadata"});
    if (const auto tier = fields.text("service_tier"); tier && *tier != "auto" && *tier != "standard_only")
      fields.wrong("service_tier", "\"auto\"");
  }
  fields.refuse({"container", "context_management", "mcp_servers"});
  fields.finish();
  return chat;
}

OrderedJson MessagesReply::whole(const OrderedJson& answer) {
  const OrderedJson& choice = answer["choices"][0];
  const OrderedJson& message = choice["message"];
  OrderedJson content = OrderedJson::array();
  if (message.contains("reasoning_content"))
    content.push_back({{"type", "thinking"}, {"thinking", message["reasoning_content"]}, {"signature", ""}});
  if (message["content"].is_string() && message["content"] != "")
    content.push_back({{"type", "text"}, {"text", message["content"]}});
  if (message.contains("tool_calls"))
    for (const OrderedJson& call : message["tool_calls"])
      content.push_back({{"type", "tool_use"},
                         {"id", call["id"]},
                         {"name", call["function"]["name"]},
                         {"input", input_of(call["function"]["arguments"].get<std::string>())}});
  const OrderedJson& usage = answer["usage"];
  return {{"id", message_id(answer)},
          {"type", "message"},
          {"role", "assistant"},
          {"model", answer["model"]},
          {"content", content},
          {"stop_reason", stop_reason(choice["finish_reason"], choice["stop_reason"])},
          {"stop_sequence", choice["stop_reason"]},
          {"usage",
           {{"input_tokens", usage["prompt_tokens"]},
            {"output_tokens", usage["completion_tokens"]},
            {"cache_read_input_tokens", usage["prompt_tokens_details"]["cached_tokens"]}}}};
}

OrderedJson MessagesReply::error_of(int status, const OrderedJson& answer) const {
  const bool known = answer.is_object() && answer.contains("error");
  return {{"type", "error"},
          {"error", {{"type", error_type(status)}, {"message", known ? answer["error"]["message"] : OrderedJson("")}}}};
}

void MessagesReply::begin_block(const OrderedJson& block) {
  if (!std::exchange(kind_, block.value("type", "")).empty())
    send_event("content_block_stop", {{"index", blocks_ - 1}});
  if (kind_.empty()) return;
  send_event("content_block_start", {{"index", blocks_++}, {"content_block", block}});
}

void MessagesReply::send_delta(const char* type, const char* field, const OrderedJson& text) {
  send_event("content_block_delta", {{"index", blocks_ - 1}, {"delta", {{"type", type}, {field, text}}}});
}

void MessagesReply::take(const OrderedJson& event) {
  if (event.contains("error")) return send_event("error", error_of(500, event));
  if (event["choices"].empty()) {
    begin_block(OrderedJson::object());
    send_event("message_delta", {{"delta", {{"stop_reason", stop_reason(reason_, stop_)}, {"stop_sequence", stop_}}},
                                 {"usage", {{"output_tokens", event["usage"]["completion_tokens"]}}}});
    return;
  }
  const OrderedJson& choice = event["choices"][0];
  if (choice["delta"].contains("role")) {
    const OrderedJson message{{"id", message_id(event)},
                              {"type", "message"},
                              {"role", "assistant"},
                              {"model", event["model"]},
                              {"content", OrderedJson::array()},
                              {"stop_reason", nullptr},
                              {"stop_sequence", nullptr},
                              {"usage", {{"input_tokens", prompt_tokens_}, {"output_tokens", 0}}}};
    return send_event("message_start", {{"message", message}});
  }
  take_delta(choice["delta"]);
  if (choice["finish_reason"].is_null()) return;
  reason_ = choice["finish_reason"];
  stop_ = choice["stop_reason"];
}

void MessagesReply::take_delta(const OrderedJson& delta) {
  if (delta.contains("reasoning_content")) {
    if (kind_ != "thinking") begin_block({{"type", "thinking"}, {"thinking", ""}, {"signature", ""}});
    send_delta("thinking_delta", "thinking", delta["reasoning_content"]);
  } else if (delta.contains("content")) {
    if (kind_ != "text") begin_block({{"type", "text"}, {"text", ""}});
    send_delta("text_delta", "text", delta["content"]);
  } else if (delta.contains("tool_calls")) {
    const OrderedJson& call = delta["tool_calls"][0];
    if (call.contains("id"))
      begin_block({{"type", "tool_use"},
                   {"id", call["id"]},
                   {"name", call["function"]["name"]},
                   {"input", OrderedJson::object()}});
    else
      send_delta("input_json_delta", "partial_json", call["function"]["arguments"]);
  }
}

}  // namespace nought
