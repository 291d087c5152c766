#include "nought/config/key_rules.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include "nought/base/error.h"
#include "nought/base/json.h"

namespace nought {

namespace {

/// The JSON values in a text, which " | " separates.
std::vector<Json> values_in(std::string_view rest) {
  std::vector<Json> values;
  for (size_t bar; (bar = rest.find(" | ")) != std::string_view::npos; rest.remove_prefix(bar + 3))
    values.push_back(Json::parse(rest.substr(0, bar)));
  values.push_back(Json::parse(rest));
  return values;
}

bool is_among(const std::vector<Json>& values, const Json& value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

}  // namespace

Judgement judge(const Json& value, const KeyRule& rule, const std::string& place, bool on_gpu) {
  const std::vector<Json> accepted = values_in(rule.defaults);
  if (value.is_null() || is_among(accepted, value)) return {};
  const std::string_view reason = on_gpu && !rule.on_gpu.empty() ? rule.on_gpu : rule.reason;
  if (rule.status == KeyStatus::refused) {
    const std::string others = rule.defaults == "null" ? "" : fmt::format("; only {} is accepted", rule.defaults);
    return {.mistake = fmt::format("{} = {} is not supported: {}{}", place, value.dump(), reason, others)};
  }
  const bool automatic = value == "auto" && !accepted[0].is_string();
  const bool same_kind =
      accepted[0].is_null() || (accepted[0].is_number() && value.is_number()) || accepted[0].type() == value.type();
  require<ConfigError>(automatic || same_kind, "{}: expected a value like {}, found {}", place, rule.defaults,
                       describe_json(value));
  if (rule.status != KeyStatus::no_effect || automatic) return {};
  return {.warning = fmt::format("{} = {} has no effect: {}", place, value.dump(), reason)};
}

bool is_note(std::string_view key) {
  constexpr std::string_view kNotes[] = {"comment", "comments", "note", "notes", "description"};
  return key.starts_with('_') || key.starts_with("//") || key.starts_with('#') ||
         std::find(std::begin(kNotes), std::end(kNotes), key) != std::end(kNotes);
}

}  // namespace nought
