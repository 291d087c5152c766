#include "nought/corpus/filter.h"

#include <fmt/ranges.h>

#include "nought/base/error.h"
#include "nought/base/json.h"
#include "nought/base/text.h"
#include "nought/base/visit.h"
#include "nought/corpus/rules.h"
#include "nought/corpus/words.h"

namespace nought {

const std::vector<std::string_view>& FilteredText::words() {
  if (!std::exchange(split_, true)) split_words(text_, words_);
  return words_;
}

void FilteredText::replace(std::string text) {
  if (text == text_) return;
  text_ = std::move(text);
  words_.clear();
  split_ = false;
}

namespace {

template <class Rules>
std::unique_ptr<Filter> read_rules(const Json& json, const Origins& origins, const std::string& path) {
  return make_filter(from_json<Rules>(json, origins, path));
}

struct KnownRules {
  const char* name;
  std::unique_ptr<Filter> (*read)(const Json& json, const Origins& origins, const std::string& path);
};
constexpr KnownRules kKnownRules[] = {{GopherRules::kName, read_rules<GopherRules>},
                                      {RepetitionRules::kName, read_rules<RepetitionRules>},
                                      {C4Rules::kName, read_rules<C4Rules>},
                                      {FineWebRules::kName, read_rules<FineWebRules>}};

std::unique_ptr<Filter> read_rule(const std::string& name, const Json& keys, const Origins& origins,
                                  const std::string& path) {
  for (const KnownRules& known : kKnownRules)
    if (name == known.name) return known.read(keys, origins, path);
  fail<ConfigError>("--rules: unknown rule set \"{}\"{}: known are {}, or a FILE.json with their keys", name,
                    did_you_mean(name, filter_names()), fmt::join(filter_names(), ", "));
}

Filters read_rule_file(const std::string& file) {
  const Json json = read_json_file(file);
  require<ConfigError>(json.is_array(), "{}: expected a list of rule sets, [{{\"rule\": \"gopher\"}}, ...], found {}",
                       file, describe_json(json));
  Filters filters;
  const Origins origins(file);
  for (const Json& entry : json) {
    const std::string path = fmt::format("[{}]", filters.size());
    require<ConfigError>(entry.is_object() && entry.contains("rule") && entry["rule"].is_string(),
                         "{}: {}: expected an object with the key \"rule\", found {}", file, path,
                         describe_json(entry));
    Json keys = entry;
    keys.erase("rule");
    filters.push_back(read_rule(entry["rule"].get<std::string>(), keys, origins, path));
  }
  return filters;
}

}  // namespace

std::vector<std::string> filter_names() {
  std::vector<std::string> names;
  for (const KnownRules& known : kKnownRules) names.emplace_back(known.name);
  return names;
}

Filters read_filters(const std::string& names_or_file) {
  if (names_or_file.ends_with(".json")) return read_rule_file(names_or_file);
  Filters filters;
  for (const std::string& name : split(names_or_file, ','))
    filters.push_back(read_rule(name, Json::object(), Origins("--rules"), ""));
  return filters;
}

}  // namespace nought
