#include "nought/serve/json_fields.h"

#include <algorithm>
#include <cmath>

#include "nought/base/text.h"
#include "nought/chat/record_json.h"
#include "nought/io/strict_json.h"
#include "nought/serve/api_error.h"

namespace nought {

namespace {
constexpr int kMaxDepth = 64;

std::string type_of(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 404:
      return "not_found_error";
    case 429:
      return "rate_limit_exceeded";
    default:
      return status < 500 ? "invalid_request_error" : "server_error";
  }
}
}  // namespace

std::string ApiError::body() const {
  const auto or_null = [](const std::string& text) { return text.empty() ? OrderedJson() : OrderedJson(text); };
  return OrderedJson{
      {"error",
       {{"message", what()}, {"type", type_of(status_)}, {"param", or_null(param_)}, {"code", or_null(code_)}}}}
      .dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

std::string error_body(int status, const std::string& message) { return ApiError(status, message).body(); }

OrderedJson parse_body(std::string_view body) {
  if (nesting_of(body) > kMaxDepth)
    throw ApiError(400, fmt::format("the body of the request is nested more than {} levels deep", kMaxDepth));
  OrderedJson json;
  try {
    json = parse_record(body, /*allow_exceptions=*/false);
  } catch (const ConfigError& error) {
    throw ApiError(400, error.what());
  }
  if (!json.is_object()) throw ApiError(400, "the body of the request is no JSON object");
  return json;
}

JsonFields::JsonFields(const OrderedJson& object, std::string where) : object_(object), where_(std::move(where)) {
  if (!object.is_object()) throw ApiError(400, where_ + ": expected an object", where_);
}

const OrderedJson* JsonFields::find(const std::string& name) {
  known_.push_back(name);
  const auto found = object_.find(name);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

void JsonFields::wrong(const std::string& name, const std::string& expected) const {
  const auto found = object_.find(name);
  const std::string value =
      found == object_.end() ? "nothing" : found->dump(-1, ' ', true, OrderedJson::error_handler_t::replace);
  throw ApiError(400, fmt::format("{}: expected {}, found {}", param(name), expected, value.substr(0, 80)),
                 param(name));
}

std::optional<double> JsonFields::number(const std::string& name, double least, double most) {
  const OrderedJson* value = find(name);
  if (!value) return std::nullopt;
  if (!value->is_number() || value->get<double>() < least || value->get<double>() > most)
    wrong(name, fmt::format("a number from {} to {}", least, most));
  return value->get<double>();
}

std::optional<int64_t> JsonFields::integer(const std::string& name, int64_t least, int64_t most) {
  const OrderedJson* value = find(name);
  if (!value) return std::nullopt;
  const bool fits = value->is_number() && std::floor(value->get<double>()) == value->get<double>() &&
                    std::abs(value->get<double>()) < 9e18;
  if (!fits || value->get<int64_t>() < least || value->get<int64_t>() > most)
    wrong(name, fmt::format("a whole number from {} to {}", least, most));
  return value->get<int64_t>();
}

bool JsonFields::boolean(const std::string& name, bool otherwise) {
  const OrderedJson* value = find(name);
  if (!value) return otherwise;
  if (!value->is_boolean()) wrong(name, "true or false");
  return value->get<bool>();
}

std::optional<std::string> JsonFields::text(const std::string& name) {
  const OrderedJson* value = find(name);
  if (!value) return std::nullopt;
  if (!value->is_string()) wrong(name, "a string");
  return value->get<std::string>();
}

void JsonFields::ignore(const std::vector<std::string>& names) {
  known_.insert(known_.end(), names.begin(), names.end());
}

void JsonFields::refuse(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    const OrderedJson* value = find(name);
    if (value && *value != false && !(value->is_structured() && value->empty()))
      throw ApiError(400, fmt::format("{} is not supported: leave it out", param(name)), param(name));
    known_.pop_back();  // no name to suggest
  }
  refused_.insert(refused_.end(), names.begin(), names.end());
}

void JsonFields::finish() const {
  for (const auto& field : object_.items()) {
    const std::string& name = field.key();
    const auto is = [&](const std::vector<std::string>& names) {
      return std::find(names.begin(), names.end(), name) != names.end();
    };
    if (!is(known_) && !is(refused_))
      throw ApiError(400, fmt::format("there is no field \"{}\"{}", param(one_line(name)), did_you_mean(name, known_)),
                     param(name));
  }
}

}  // namespace nought
