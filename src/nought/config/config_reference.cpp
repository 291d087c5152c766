#include "nought/config/config_reference.h"

#include <algorithm>

#include "nought/config/ds_config.h"
#include "nought/config/key_names.h"
#include "nought/config/run_config.h"
#include "nought/config/training_rules.h"

namespace nought {

namespace {

constexpr std::string_view kDeepSpeed = "deepspeed";
constexpr std::string_view kTraining = "training";
constexpr const char* kAlias = "another name";

ConfigEntry implemented(const KeyInfo& key) { return {key.path, key.type, key.fallback, key.help}; }

ConfigEntry ruled(std::string_view section_path, const KeyRule& rule) {
  const std::string path = join_path(section_path, rule.path);
  const std::string defaults(rule.defaults);
  const std::string reason =
      rule.on_gpu.empty() ? std::string(rule.reason) : fmt::format("{}; on GPUs: {}", rule.reason, rule.on_gpu);
  switch (rule.status) {
    case KeyStatus::no_effect:
      return {path, "", defaults, reason, KeyUse::no_effect};
    case KeyStatus::refused:
      return {path, "", defaults, reason, KeyUse::refused};
    case KeyStatus::enabled:
      return {path, "", "", reason + "; a section in which nothing is enabled is accepted", KeyUse::refused};
    case KeyStatus::gated:
      break;
  }
  const std::string section(rule.path.substr(0, rule.path.rfind('.')));
  return {path, "", "", fmt::format("another key decides whether {} is used", section), KeyUse::no_effect};
}

/// The part of a path that is a table's title: "training", "data", "deepspeed", "deepspeed.zero_optimization".
std::string section_of(const std::string& path) {
  const size_t first = path.find('.');
  if (first == std::string::npos) return "";
  const size_t second = path.find('.', first + 1);
  return second == std::string::npos || !path.starts_with(kDeepSpeed) ? path.substr(0, first) : path.substr(0, second);
}

constexpr std::string_view kArgumentsText = R"(
### TrainingArguments

What becomes of each field of Hugging Face's TrainingArguments (transformers 5.23, then older fields) that stands in `training`. One
with *no effect* is accepted and, at another value than those shown, warned about. A **refused** one is an error at any value but
those shown. `warmup_steps` below 1 is read as `warmup_ratio`.

| field | accepted silently | what happens |
| --- | --- | --- |
)";

/// A cell of a Markdown table: bars and pointed brackets mean themselves.
std::string cell(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '|') escaped += '\\';
    if (c == '<') {
      escaped += "&lt;";
    } else {
      escaped += c;
    }
  }
  return escaped;
}

std::string code(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '|') escaped += '\\';
    escaped += c;
  }
  return text.empty() ? "" : fmt::format("`{}`", escaped);
}

std::string what_happens(const ConfigEntry& entry) {
  switch (entry.use) {
    case KeyUse::implemented:
      return entry.help;
    case KeyUse::no_effect:
      return fmt::format("*no effect*: {}", entry.help);
    case KeyUse::refused:
      return fmt::format("**refused**: {}", entry.help);
  }
  return "";
}

std::string table(const std::vector<ConfigEntry>& entries, const std::string& section) {
  std::string text = "| key | default | what it does |\n| --- | --- | --- |\n";
  for (const ConfigEntry& entry : entries) {
    if (section_of(entry.path) != section) continue;
    const bool is_argument = entry.use != KeyUse::implemented || entry.type == kAlias;
    if (section == kTraining && is_argument) continue;  // arguments_table() has them
    const std::string key = section.empty() ? entry.path : entry.path.substr(section.size() + 1);
    const std::string type = entry.type.empty() ? "" : fmt::format(" ({})", entry.type);
    text += fmt::format("| {} | {} | {}{} |\n", code(key), code(entry.fallback), cell(what_happens(entry)), cell(type));
  }
  return text;
}

/// Every field of TrainingArguments, then the older ones that are still met.
std::string arguments_table(const std::vector<ConfigEntry>& entries) {
  std::string text(kArgumentsText);
  const auto row = [&](std::string_view name) {
    const std::string path = join_path(kTraining, name);
    const auto is = [&](const ConfigEntry& each) { return each.path == path || each.path.starts_with(path + "."); };
    const auto entry = std::find_if(entries.begin(), entries.end(), is);
    if (entry == entries.end()) return;
    const bool works = entry->use == KeyUse::implemented;
    text += fmt::format("| {} | {} | {} |\n", code(std::string(name)), works ? "" : code(entry->fallback),
                        works && entry->type != kAlias ? "implemented" : cell(what_happens(*entry)));
  };
  const auto arguments = training_arguments();
  const auto is_older = [&](std::string_view name) {
    return std::find(arguments.begin(), arguments.end(), name) == arguments.end();
  };
  for (const std::string_view name : arguments) row(name);
  for (const auto& [alias, key] : training_aliases())
    if (is_older(alias)) row(alias);
  for (const KeyRule& rule : training_rules())
    if (is_older(rule.path)) row(rule.path);
  return text;
}

constexpr std::string_view kIntroduction = R"(# Configuration

`nought config --markdown` writes this page from the lists by which the program reads its configuration, and a test compares
the two. `nought config WORD` searches it. `nought check RUN.json` shows the values of a run and their reasons.

A run is one JSON file (comments and trailing commas are fine) with four keys:

    {
      "model": "path/of/a/hugging-face-folder",
      "data": {"files": ["corpus/**/*.txt"], "tokenizer": "path/of/a/hugging-face-folder", "seq_length": 1024},
      "training": {"max_steps": 1000, "per_device_train_batch_size": 4, "learning_rate": 3e-4, "bf16": true},
      "deepspeed": "ds_config.json"
    }

The paths of `model`, `data` and `deepspeed` are relative to that file; `training.output_dir`, flags and `--set` are relative to the
current directory. `nought init` writes such a file with comments.

`--set training.max_steps=5` overrides a value, and works for any key. An unknown key is an error that names the nearest known
one, or what it is called here (`lr`, `batch_size`), and one run tells all mistakes of a ds_config.json. A key that begins with
`_`, `//` or `#`, or is called `comment` or `notes`, is a note to people. A key that is given in `training` and in `deepspeed` must have the same value in both, or be `"auto"` in `deepspeed`,
which takes the value of `training`.

The batch of one update is `per_device_train_batch_size x gradient_accumulation_steps x ranks`. In DeepSpeed's terms,
`train_batch_size = train_micro_batch_size_per_gpu x gradient_accumulation_steps x world`. If the number of ranks and two of
these three keys are given, the third follows.

`deepspeed` may also be the YAML file that `accelerate config` writes, with its `deepspeed_config` section or the
`deepspeed_config_file` that it names. Its `mixed_precision` fills what is `"auto"` or absent there. Machines, ports and processes
are left to mpirun: a `num_processes` that is not the number of ranks is warned about. `RANK` and `WORLD_SIZE` of torchrun and
`accelerate launch` are refused outside of an MPI job, as each process would train for itself.

Parameters are named as in the Hugging Face folder. `parameter_groups`, `freeze` and `trainable` search for regular expressions in
these names. This run trains the head and the norms, and nothing else:

    "training": {"freeze": ["."], "trainable": ["lm_head", "norm"]}

A frozen parameter takes no memory but its own and is not reduced. The backward pass ends above the lowest block with something to
train. `nought plan` shows what that saves. Parameters that form one product (q, k and v; gate and up; the experts of a layer) are
frozen together or not at all. A checkpoint resumes with the same frozen parameters only.
)";

}  // namespace

std::vector<ConfigEntry> config_reference() {
  std::vector<ConfigEntry> entries;
  for (const KeyInfo& key : list_keys<RunConfig>()) entries.push_back(implemented(key));
  for (const auto& [alias, key] : training_aliases())
    entries.push_back({join_path(kTraining, alias), kAlias, "", fmt::format("the same as {}", key)});
  for (const KeyRule& rule : training_rules()) entries.push_back(ruled(kTraining, rule));
  std::vector<ConfigEntry> deepspeed;
  for (KeyInfo key : list_keys<DsConfig>()) {
    key.path = join_path(kDeepSpeed, key.path);
    deepspeed.push_back(implemented(key));
  }
  for (const KeyRule& rule : ds_key_rules()) deepspeed.push_back(ruled(kDeepSpeed, rule));
  // Keys of one section stand together, in the order in which the section was first met.
  while (!deepspeed.empty()) {
    const std::string section = section_of(deepspeed.front().path);
    const auto rest = std::stable_partition(deepspeed.begin(), deepspeed.end(),
                                            [&](const ConfigEntry& e) { return section_of(e.path) == section; });
    entries.insert(entries.end(), deepspeed.begin(), rest);
    deepspeed.erase(deepspeed.begin(), rest);
  }
  return entries;
}

namespace {

/// How well an entry answers a search, the best first; kNoAnswer: it does not.
enum Answer { is_meant, name_is_it, name_has_it, help_has_it, name_is_idle, help_is_idle, kNoAnswer };

/// meant: the path of the key that other programs call so; "" if there is none.
Answer answer(const ConfigEntry& entry, const std::string& word, const std::string& meant) {
  const std::string path = lower_case(entry.path),
                    text = lower_case(entry.help + "\n" + entry.type + "\n" + entry.fallback);
  const bool works = entry.use == KeyUse::implemented;
  if (works && entry.path == meant) return is_meant;
  if (works && (path == word || path.ends_with("." + word))) return name_is_it;
  if (path.find(word) != std::string::npos) return works ? name_has_it : name_is_idle;
  if (text.find(word) != std::string::npos) return works ? help_has_it : help_is_idle;
  return kNoAnswer;
}

}  // namespace

std::string config_text(const std::string& filter) {
  std::vector<ConfigEntry> entries = config_reference();
  const std::string word = lower_case(filter), meant = meant_key(word);
  const auto rank = [&](const ConfigEntry& entry) { return answer(entry, word, meant); };
  std::erase_if(entries, [&](const ConfigEntry& entry) { return rank(entry) == kNoAnswer; });
  if (!word.empty())
    std::stable_sort(entries.begin(), entries.end(),
                     [&](const ConfigEntry& a, const ConfigEntry& b) { return rank(a) < rank(b); });
  std::string text;
  for (const ConfigEntry& entry : entries) {
    const bool works = entry.use == KeyUse::implemented;
    const std::string use = works ? entry.type : entry.use == KeyUse::refused ? "refused" : "no effect";
    const std::string fallback =
        entry.fallback.empty() ? "" : fmt::format("; {} {}", works ? "default" : "accepted:", entry.fallback);
    text += fmt::format("{}\n    {}{}({}{})\n", entry.path, entry.help, entry.help.empty() ? "" : " ", use, fallback);
  }
  return text;
}

std::string config_markdown() {
  const std::vector<ConfigEntry> entries = config_reference();
  std::string text(kIntroduction);
  std::vector<std::string> seen;
  for (const ConfigEntry& entry : entries) {
    const std::string section = section_of(entry.path);
    if (std::find(seen.begin(), seen.end(), section) != seen.end()) continue;
    seen.push_back(section);
    if (section == kDeepSpeed)
      text +=
          "\n## deepspeed: ds_config.json\n\nEvery key that DeepSpeed documents is known here. A key with *no effect* "
          "is "
          "accepted and, at another value than the one shown, warned about; a **refused** one is an error at any value "
          "but "
          "those shown.\n";
    const std::string title = section.empty() ? "RUN.json" : section;
    if (section != kDeepSpeed) text += fmt::format("\n{} {}\n", section.starts_with(kDeepSpeed) ? "###" : "##", title);
    text += '\n';
    text += table(entries, section);
    if (section == kTraining) text += arguments_table(entries);
  }
  return text;
}

}  // namespace nought
