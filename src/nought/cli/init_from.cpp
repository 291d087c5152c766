#include "nought/cli/init_from.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "nought/base/json.h"
#include "nought/base/text.h"
#include "nought/cli/init.h"

namespace nought {

namespace {

/// Keys whose values are paths that a RUN.json has relative to itself.
bool holds_path(const std::string& path) {
  return path == "model" || path == "adapter" || path == "deepspeed" || path == "data.files" ||
         path == "data.validation_files" || path == "data.tokenizer" || path == "data.chat_template" ||
         path == "alignment.ref_model" || path == "alignment.reward_model";
}

Json relative(const Json& value, const std::string& run_file) {
  if (value.is_string()) return relative_to_run_file(value.get<std::string>(), run_file);
  if (!value.is_array()) return value;
  Json all = Json::array();
  for (const Json& each : value) all.push_back(relative(each, run_file));
  return all;
}

/// Writes objects by the lines of their keys, each with a comment.
class Writer {
 public:
  Writer(const TranslatedRun& run, const std::string& run_file) {
    for (const char* section :
         {"model", "data", "training", "alignment", "adapter", "quantization_config", "deepspeed"})
      for (const TakenKey& key : run.taken)
        if (key.path == section || key.path.starts_with(std::string(section) + "."))
          add(key, holds_path(key.path) ? relative(key.value, run_file) : key.value);
    if (run.find("data.files") == nullptr) add_note("data", "\"files\": [\"PATH\"],  // what to train on");
    if (run.find("model") == nullptr) add_note("", "\"model\": \"MODEL_DIR\",  // what to train");
  }

  std::string text() const { return "{\n" + members(root_, "", 1) + "}\n"; }

 private:
  void add(const TakenKey& key, const Json& value) {
    OrderedJson* object = &root_;
    size_t begin = 0;
    for (size_t dot; (dot = key.path.find('.', begin)) != std::string::npos; begin = dot + 1)
      object = &(*object)[key.path.substr(begin, dot - begin)];
    (*object)[key.path.substr(begin)] = OrderedJson::parse(value.dump());
    leaves_[key.path] = key.from;
  }
  void add_note(const std::string& section, const std::string& note) {
    if (!section.empty() && !root_.contains(section)) root_[section] = OrderedJson::object();
    notes_[section] = note;
  }

  std::string members(const OrderedJson& object, const std::string& path, size_t depth) const {
    const std::string indent(2 * depth, ' ');
    std::string text;
    if (const auto note = notes_.find(path); note != notes_.end()) text += indent + "// " + note->second + "\n";
    for (const auto& [key, value] : object.items()) {
      const std::string at = join_path(path, key), name = OrderedJson(key).dump();
      if (const auto leaf = leaves_.find(at); leaf != leaves_.end()) {
        const std::string comment = leaf->second.empty() ? "" : "  // " + one_line(leaf->second);
        text += fmt::format("{}{}: {},{}\n", indent, name, value.dump(), comment);
      } else {
        text += fmt::format("{}{}: {{\n{}{}}},\n", indent, name, members(value, at, depth + 1), indent);
      }
    }
    return text;
  }

  OrderedJson root_ = OrderedJson::object();
  std::map<std::string, std::string> leaves_;  // the comment of each value
  std::map<std::string, std::string> notes_;   // of sections that lack something
};

std::string next_steps(const TranslatedRun& run, const std::string& run_file) {
  std::string text;
  if (run.find("model") == nullptr) text += fmt::format("{}: write the folder of the model as \"model\"\n", run_file);
  if (run.find("data.files") == nullptr)
    text += fmt::format("{}: write what to train on as data.files, or call this again with --data FILE\n", run_file);
  return text + fmt::format("next: nought check {} --ranks {}\n", run_file, run.ranks);
}

}  // namespace

std::string foreign_run_text(const TranslatedRun& run, const ForeignSettings& settings, const std::string& run_file) {
  std::string text = fmt::format(
      "// `nought init --from {}` wrote this from {}; comments say its lines.\n"
      "//   nought check {} --ranks {}     every value and its reason\n",
      one_line(settings.file), describe(settings.format), one_line(run_file), run.ranks);
  if (!run.missing.empty()) text += "// What has no counterpart here:\n";
  for (const std::string& line : run.missing) text += "//   " + one_line(line) + "\n";
  return text + Writer(run, run_file).text();
}

std::string foreign_run_report(const TranslatedRun& run, const ForeignSettings& settings, const std::string& run_file) {
  std::string text = fmt::format(
      "{}: written from {}, {}: {} keys\n", run_file, describe(settings.format), settings.file,
      std::count_if(run.taken.begin(), run.taken.end(), [](const TakenKey& key) { return !key.from.empty(); }));
  if (!run.missing.empty()) text += "no counterpart here:\n";
  for (const std::string& line : run.missing) text += "  " + line + "\n";
  if (!run.not_needed.empty()) text += "nothing to be done for:\n";
  for (const std::string& line : run.not_needed) text += "  " + line + "\n";
  if (!run.mistake.empty())
    text += fmt::format("to be mended, as together these keys are refused:\n  {}\n", run.mistake);
  return text + next_steps(run, run_file);
}

}  // namespace nought
