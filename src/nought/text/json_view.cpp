#include "nought/text/json_view.h"

namespace nought {

namespace {

const Json kNull;

}  // namespace

JsonView JsonView::operator[](std::string_view key) const {
  if (!value_->is_object()) expected("an object");
  const auto found = value_->find(key);
  // "FILE" + "model" = "FILE: model"; "FILE: model" + "type" = "FILE: model.type".
  const char* joint = place_.find(": ") == std::string::npos ? ": " : ".";
  return {found == value_->end() ? kNull : *found, fmt::format("{}{}{}", place_, joint, key)};
}

std::vector<JsonView> JsonView::list() const {
  if (!value_->is_array()) expected("a list");
  std::vector<JsonView> elements;
  elements.reserve(value_->size());
  for (const Json& element : *value_) elements.emplace_back(element, fmt::format("{}[{}]", place_, elements.size()));
  return elements;
}

const std::string& JsonView::string() const {
  if (!value_->is_string()) expected("a string");
  return value_->get_ref<const std::string&>();
}

int64_t JsonView::integer() const {
  if (!value_->is_number_integer()) expected("an integer");
  return value_->get<int64_t>();
}

double JsonView::number() const {
  if (!value_->is_number()) expected("a number");
  return value_->get<double>();
}

bool JsonView::boolean() const {
  if (!value_->is_boolean()) expected("true or false");
  return value_->get<bool>();
}

void JsonView::refuse(std::initializer_list<std::string_view> keys) const {
  for (const std::string_view key : keys) {
    const JsonView given = (*this)[key];
    const Json& value = given.json();
    const bool off = value.is_null() || (value.is_string() && value.get_ref<const std::string&>().empty()) ||
                     (value.is_boolean() && !value.get<bool>());
    given.check(off, "is {}, which is not supported", describe_json(value));
  }
}

void JsonView::expected(std::string_view what) const {
  throw ConfigError(fmt::format("{}: expected {}, found {}", place_, what, describe_json(*value_)));
}

}  // namespace nought
