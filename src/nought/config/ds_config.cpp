#include "nought/config/ds_config.h"

#include <algorithm>
#include <map>

#include <fmt/ranges.h>

namespace nought {

namespace {

/// A known key: a section (children), an implemented key (neither), or one with a rule.
struct KeyNode {
  std::map<std::string, KeyNode> children;
  const KeyRule* rule = nullptr;
  bool implemented = false;
  bool takes_auto = false;  // "auto" means something else than that the key is absent
};

KeyNode& node_at(KeyNode& root, std::string_view path) {
  KeyNode* node = &root;
  for (const std::string& part : split(path, '.')) node = &node->children[part];
  return *node;
}

KeyNode make_key_tree() {
  KeyNode root;
  for (const KeyInfo& key : list_keys<DsConfig>()) {
    KeyNode& node = node_at(root, key.path);
    node.implemented = true;
    node.takes_auto = key.type.find("\"auto\"") != std::string::npos;
  }
  for (const KeyRule& rule : ds_key_rules()) node_at(root, rule.path).rule = &rule;
  return root;
}

const KeyNode& key_tree() {
  static const KeyNode tree = make_key_tree();
  return tree;
}

/// The path of the key `name` in a section of the file, the shortest one; "" if none has it.
std::string path_in_a_section(const KeyNode& root, const std::string& name) {
  for (const auto& [section, node] : root.children)
    if (node.children.contains(name)) return section + "." + name;
  return "";
}

bool anything_enabled(const Json& json) {
  if (json.is_array()) return std::any_of(json.begin(), json.end(), anything_enabled);
  if (!json.is_object()) return false;
  for (const auto& [key, value] : json.items())
    if ((key == "enabled" && value == true) || anything_enabled(value)) return true;
  return false;
}

/// Walks the section beside the tree of known keys; keeps what is implemented, judges the rest. What is wrong is
/// collected, so that one run tells all of it.
class Walk {
 public:
  Walk(const Origins& origins, std::vector<std::string>& warnings, bool on_gpu)
      : origins_(origins), warnings_(warnings), on_gpu_(on_gpu) {}

  Json section(const Json& json, const KeyNode& node, const std::string& path) {
    require<ConfigError>(json.is_object(), "{}: expected an object, found {}", origins_.place(path),
                         describe_json(json));
    Json kept = Json::object();
    for (const auto& [key, value] : json.items()) {
      const std::string at = join_path(path, key);
      const auto known = node.children.find(key);
      if (known == node.children.end() && wildcard(node) != nullptr) {
        judge_free(value, *wildcard(node), at, key == "enabled");
      } else if (known == node.children.end()) {
        if (!is_note(key)) judge_unknown(key, node, at);
      } else {
        Json part = one_key(value, known->second, at);
        const bool nothing = part.is_null() || (part.is_object() && part.empty());
        if (!nothing) kept[key] = std::move(part);
      }
    }
    return kept;
  }

  /// One line with everything that is wrong. ConfigError unless nothing is.
  void require_no_mistakes() const {
    if (!mistakes_.empty()) fail<ConfigError>("{}", fmt::join(mistakes_, "; "));
  }

 private:
  /// DeepSpeed's reader drops "auto", whatever the key.
  Json one_key(const Json& value, const KeyNode& node, const std::string& at) {
    const bool dropped = value == "auto" && !node.takes_auto && node.children.empty();
    if (node.implemented || dropped) return dropped ? Json() : value;
    if (node.rule != nullptr) {
      judge(value, *node.rule, at);
      return {};
    }
    return value.is_null() ? Json() : section(value, node, at);
  }

  static const KeyRule* wildcard(const KeyNode& node) {
    const auto any = node.children.find("*");
    return any == node.children.end() ? nullptr : any->second.rule;
  }

  void judge_free(const Json& value, const KeyRule& rule, const std::string& at, bool is_switch) {
    if (rule.status == KeyStatus::enabled && (anything_enabled(value) || (is_switch && value == true)))
      mistakes_.push_back(fmt::format("{}: not supported: {}", origins_.place(at), rule.reason));
  }

  void judge(const Json& value, const KeyRule& rule, const std::string& at) {
    Judgement judgement = nought::judge(value, rule, origins_.place(at), on_gpu_);
    if (!judgement.mistake.empty()) mistakes_.push_back(std::move(judgement.mistake));
    if (!judgement.warning.empty()) warnings_.push_back(std::move(judgement.warning));
  }

  /// DeepSpeed passes over every unknown key of the file itself, where scripts keep keys of their own. One that is near
  /// to a known one is misspelt.
  void judge_unknown(const std::string& key, const KeyNode& node, const std::string& at) {
    std::vector<std::string> names;
    for (const auto& [name, child] : node.children) names.push_back(name);
    const std::string advice = did_you_mean(key, names);
    if (&node != &key_tree() || !advice.empty()) {
      mistakes_.push_back(fmt::format("{}: unknown key{}", origins_.place(at), advice));
      return;
    }
    const std::string elsewhere = path_in_a_section(node, key);
    warnings_.push_back(fmt::format("{} is not a key of ds_config.json: not used, as in DeepSpeed{}",
                                    origins_.place(at), elsewhere.empty() ? "" : "; it belongs into " + elsewhere));
  }

  const Origins& origins_;
  std::vector<std::string>& warnings_;
  const bool on_gpu_;
  std::vector<std::string> mistakes_;
};

/// The section with DeepSpeed's old name of bf16 spelt as the new one.
Json with_present_names(Json json, const Origins& origins) {
  const auto old = json.find("bfloat16");
  if (old == json.end()) return json;
  require<ConfigError>(!json.contains("bf16"), "{} and bf16 name the same section: leave one of them out",
                       origins.place("deepspeed.bfloat16"));
  Json section = *old;
  json.erase(old);
  json["bf16"] = std::move(section);
  return json;
}

/// DeepSpeed's types of optimizers and schedulers, in two parts: those implemented here and those refused by name.
struct TypeChoice {
  std::string section;
  std::vector<std::string> implemented;
  std::vector<std::string> refused;
};

/// The section's type in DeepSpeed's spelling, whatever the case it was written in; "" without the section. Checked
/// before the section's parameters, which belong to the type.
std::string require_type(const Json& json, const TypeChoice& choice, const Origins& origins) {
  const auto section = json.find(choice.section);
  if (section == json.end() || !section->is_object() || section->empty()) return "";
  const std::string at = "deepspeed." + choice.section;
  const auto type = section->find("type");
  require<ConfigError>(type != section->end() && type->is_string(), "{}: expected a \"type\", one of {}",
                       origins.place(at), fmt::join(choice.implemented, ", "));
  const std::string name = *type;
  const auto same = [&](const std::string& known) { return lower_case(known) == lower_case(name); };
  if (const auto it = std::find_if(choice.implemented.begin(), choice.implemented.end(), same);
      it != choice.implemented.end())
    return *it;

  const std::string place = origins.place(at + ".type");
  if (std::any_of(choice.refused.begin(), choice.refused.end(), same))
    fail<ConfigError>("{} = \"{}\" is not supported; use {}", place, name, fmt::join(choice.implemented, " or "));
  std::vector<std::string> all = choice.implemented;
  all.insert(all.end(), choice.refused.begin(), choice.refused.end());
  fail<ConfigError>("{}: unknown type \"{}\"{}; use {}", place, name, did_you_mean(name, all),
                    fmt::join(choice.implemented, " or "));
}

}  // namespace

DsConfig read_ds_config(const Json& json, const Origins& origins, std::vector<std::string>& warnings, bool on_gpu) {
  if (json.is_null()) return {};
  require<ConfigError>(json.is_object(), "{}: expected an object, found {}", origins.place("deepspeed"),
                       describe_json(json));
  const TypeChoice optimizers{
      "optimizer",
      {"AdamW", "Adam", "Adagrad", "Lamb", "Lion", "Muon", "SGD", "OneBitAdam", "OneBitLamb", "ZeroOneAdam"},
      {}};
  const TypeChoice schedulers{
      "scheduler", {"WarmupLR", "WarmupDecayLR", "WarmupCosineLR", "LRRangeTest", "OneCycle"}, {}};
  const std::string optimizer = require_type(json, optimizers, origins);
  const std::string scheduler = require_type(json, schedulers, origins);

  Walk walk(origins, warnings, on_gpu);
  const Json kept = walk.section(with_present_names(json, origins), key_tree(), "deepspeed");
  walk.require_no_mistakes();
  auto config = from_json<DsConfig>(kept, origins, "deepspeed");
  config.optimizer.type.value = optimizer;
  config.scheduler.type.value = scheduler;
  return config;
}

}  // namespace nought
