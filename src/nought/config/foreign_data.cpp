#include "nought/config/foreign_data.h"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

namespace nought {

namespace {

namespace fs = std::filesystem;

constexpr const char* kNowhere = "is not a file here, and data sets of the hub are not fetched: give --data FILE";

class FileSearch {
 public:
  FileSearch(const ForeignSettings& settings, const ForeignSetting& setting) : settings_(settings), setting_(setting) {}

  ForeignFiles run() {
    const Json& value = setting_.value;
    if (value.is_array()) {
      for (size_t i = 0; i < value.size(); ++i) {
        const std::string at = fmt::format("{}[{}]", setting_.key, i);
        value[i].is_object() ? data_set(value[i], at) : named(value[i], setting_.place);
      }
    } else if (value.is_object()) {  // a mixer: names and shares
      for (const auto& [name, share] : value.items()) named(name, settings_.place(setting_.key + "." + name));
    } else if (value.is_string()) {
      const auto text = value.get<std::string>();
      for (size_t begin = 0; begin < text.size();) {
        const size_t end = std::min(text.find(',', begin), text.size());
        named(text.substr(begin, end - begin), setting_.place);
        begin = end + 1;
      }
    }
    return std::move(result_);
  }

 private:
  /// An entry of axolotl's list.
  void data_set(const Json& entry, const std::string& at) {
    const Json files = entry.value("data_files", Json());
    const std::string place = settings_.place(at + ".path");
    if (files.is_string() || files.is_array()) {
      for (const Json& file : files.is_array() ? files : Json::array({files})) named(file, place);
    } else {
      named(entry.value("path", Json()), place);
    }
    for (const auto& [key, value] : entry.items()) {
      const bool names = key == "path" || key == "data_files" || key == "ds_type" || key == "name";
      const bool usual = key == "type" && value.is_string();  // the first record of each file tells what it holds
      if (names || usual || value.is_null() || (key == "split" && value == "train")) continue;
      result_.missing.push_back(fmt::format(
          "{}: {}.{} = {}: files hold texts or messages, by the names that docs/data.md lists",
          settings_.place(at + "." + key), at, key, value.is_string() ? value.get<std::string>() : value.dump()));
    }
  }

  void named(const Json& name, const std::string& place) {
    if (!name.is_string()) return;
    const auto text = name.get<std::string>();
    std::string file = found_file(settings_, text);
    if (file.empty() && settings_.format == ForeignFormat::llama_factory) file = listed_file(text);
    if (file.empty()) {
      result_.missing.push_back(fmt::format("{}: {} = {}: {}", place, setting_.key, text, kNowhere));
    } else {
      result_.files.push_back(file);
    }
  }

  /// The file that LLaMA-Factory's list gives a name.
  std::string listed_file(const std::string& name) {
    std::string folder = "data";
    for (const ForeignSetting& each : settings_.settings)
      if (each.key == "dataset_dir" && each.value.is_string()) folder = each.value.get<std::string>();
    const std::string list = found_file(settings_, folder + "/dataset_info.json");
    if (list.empty()) return "";
    const Json entry = read_json_file(list).value(name, Json());
    const Json file = entry.is_object() ? entry.value("file_name", Json()) : Json();
    if (!file.is_string()) return "";
    const fs::path path = fs::path(list).parent_path() / file.get<std::string>();
    std::error_code ignored;
    return fs::exists(path, ignored) ? path.string() : "";
  }

  const ForeignSettings& settings_;
  const ForeignSetting& setting_;
  ForeignFiles result_;
};

}  // namespace

std::string found_file(const ForeignSettings& settings, const std::string& path) {
  std::error_code ignored;
  if (path.empty()) return "";
  if (fs::exists(path, ignored)) return path;
  const fs::path beside = fs::path(settings.file).parent_path() / path;
  return fs::exists(beside, ignored) ? beside.string() : "";
}

ForeignFiles find_foreign_files(const ForeignSettings& settings, const ForeignSetting& setting) {
  return FileSearch(settings, setting).run();
}

}  // namespace nought
