#include <algorithm>

#include <fmt/ranges.h>

#include "nought/base/error.h"
#include "nought/base/json.h"
#include "nought/base/text.h"
#include "nought/chat/chat_notation.h"
#include "nought/chat/chat_template.h"
#include "nought/io/files.h"
#include "nought/io/gguf_file.h"
#include "nought/text/gguf_vocabulary.h"

namespace nought {

namespace fs = std::filesystem;

namespace {

/// A file's JSON object; an empty one if there is no such file.
Json object_in(const fs::path& file) {
  std::error_code ignored;
  if (!fs::is_regular_file(file, ignored)) return Json::object();
  Json json = Json::parse(read_text(file), nullptr, /*allow_exceptions=*/false);
  require<ConfigError>(json.is_object(), "{}: not a JSON object", file.string());
  return json;
}

/// The value of "chat_template": a text, or a list of {name, template} of which one is the default.
std::optional<std::string> program_in(const Json& json, const fs::path& file) {
  const auto found = json.find("chat_template");
  if (found == json.end() || found->is_null()) return std::nullopt;
  if (found->is_string()) return found->get<std::string>();
  if (found->is_array())
    for (const Json& each : *found)
      if (each.is_object() && each.value("name", Json()) == "default" && each.contains("template") &&
          each["template"].is_string())
        return each["template"].get<std::string>();
  fail<ConfigError>("{}: chat_template must be a text, or a list with a \"default\"", file.string());
}

/// The special tokens that a folder's files name: "bos_token" and others.
std::vector<std::pair<std::string, std::string>> specials_in(const fs::path& folder) {
  std::vector<std::pair<std::string, std::string>> specials;
  for (const char* file : {"tokenizer_config.json", "special_tokens_map.json"}) {
    const Json json = object_in(folder / file);
    for (const auto& entry : json.items()) {
      const std::string& key = entry.key();
      const Json text = entry.value().is_object() ? entry.value().value("content", Json()) : entry.value();
      const auto is_key = [&](const auto& each) { return each.first == key; };
      if (key.ends_with("_token") && text.is_string() && std::none_of(specials.begin(), specials.end(), is_key))
        specials.emplace_back(key, text.get<std::string>());
    }
  }
  return specials;
}

/// The text that stands for the token that ends a document.
std::string end_of_document(const Tokenizer& tokenizer) {
  const int32_t id = tokenizer.separator();
  for (const std::string& text : {tokenizer.decode(std::span(&id, 1)), std::string("</s>")})
    if (!text.empty() && tokenizer.find(text) == id) return text;
  return std::string(1, kEndOfText);
}

/// What looks like a marker in a program: <|name|>, also with DeepSeek's wide bars, and the markers of the notations.
std::vector<std::string> markers_in(const std::string& program) {
  std::vector<std::string> markers;
  const auto add = [&](const std::string& marker) {
    if (!marker.empty() && std::count(markers.begin(), markers.end(), marker) == 0) markers.push_back(marker);
  };
  for (const auto& [open, close] : {std::pair("<|", "|>"), std::pair("<｜", "｜>")})
    for (size_t at = program.find(open); at != std::string::npos; at = program.find(open, at + 1)) {
      const size_t end = program.find(close, at + 2);
      if (end == std::string::npos) break;
      const std::string marker = program.substr(at, end - at) + close;
      if (marker.size() <= 60 && marker.find_first_of(" '\"{}\n\\", 0) == std::string::npos) add(marker);
    }
  for (const ChatNotation& each : chat_notations()) {
    for (const std::string_view marker : each.markers)
      if (program.find(marker) != std::string::npos) add(std::string(marker));
    if (program.find(each.end) != std::string::npos) add(std::string(each.end));
  }
  return markers;
}

/// Adds what the program writes as tokens.
ChatSource with_markers(ChatSource source, const Tokenizer& tokenizer) {
  source.markers = markers_in(source.jinja);
  for (const auto& [key, text] : source.specials)
    if (!text.empty() && source.jinja.find(key) != std::string::npos) source.markers.push_back(text);
  const auto is_end = [](const auto& each) { return each.first == "eos_token"; };
  if (std::none_of(source.specials.begin(), source.specials.end(), is_end))
    source.specials.emplace_back("eos_token", end_of_document(tokenizer));
  return source;
}

ChatSource source_of(const fs::path& file, std::string program, const fs::path& folder, const Tokenizer& tokenizer) {
  return with_markers({file.string(), std::move(program), specials_in(folder)}, tokenizer);
}

/// The program of a folder, and the file that has it.
std::optional<std::pair<fs::path, std::string>> program_of(const fs::path& folder) {
  std::error_code ignored;
  const fs::path jinja = folder / "chat_template.jinja";
  if (fs::is_regular_file(jinja, ignored)) return std::pair(jinja, read_text(jinja));
  for (const char* name : {"tokenizer_config.json", "chat_template.json"})
    if (auto program = program_in(object_in(folder / name), folder / name)) return std::pair(folder / name, *program);
  return std::nullopt;
}

/// The program of a GGUF file, if it has one.
std::optional<ChatSource> source_of_gguf(const fs::path& path, const Tokenizer& tokenizer) {
  const GgufFile file(path);
  const std::string* program = file.text("tokenizer.chat_template");
  if (program == nullptr) return std::nullopt;
  ChatSource source{path.string(), *program, {}};
  const OrderedJson config = gguf_tokenizer_config(file);
  for (const auto& [key, text] : config.items())
    if (key.ends_with("_token")) source.specials.emplace_back(key, text.get<std::string>());
  source = with_markers(std::move(source), tokenizer);
  source.of_folder = true;
  return source;
}

}  // namespace

std::string chat_format_names() { return fmt::format("{}", fmt::join(enum_names<ChatFormat>(), ", ")); }

ChatFormat chat_format(std::string_view name) {
  if (const auto format = enum_named<ChatFormat>(name)) return *format;
  fail<ConfigError>("the chat template \"{}\" is not known: it is no file, and none of {}{}", name, chat_format_names(),
                    did_you_mean(name, enum_names<ChatFormat>()));
}

ChatFormat chat_format_of(const Tokenizer& tokenizer) {
  for (const ChatNotation& each : chat_notations())
    if (!each.telltales.empty() && std::all_of(each.telltales.begin(), each.telltales.end(),
                                               [&](std::string_view marker) { return tokenizer.find(marker); }))
      return each.format;
  fail<ConfigError>(
      "the tokenizer \"{}\" has no markers of a known chat template: name one of {} (data.chat_template, "
      "--chat-template)",
      tokenizer.name(), chat_format_names());
}

ChatSource chat_source(ChatFormat format, const Tokenizer& tokenizer) {
  const ChatNotation& notation = notation_of(format);
  const bool begins = !notation.begin.empty() && tokenizer.find(notation.begin);
  ChatSource source{
      std::string(enum_name(format)), jinja_of(notation, begins), {{"eos_token", end_of_document(tokenizer)}}};
  source.markers.assign(notation.markers.begin(), notation.markers.end());
  source.spelt.assign(notation.spelt.begin(), notation.spelt.end());
  source.is_notation = true;
  if (!notation.end.empty()) source.markers.emplace_back(notation.end);
  if (begins) source.markers.emplace_back(notation.begin);
  return source;
}

ChatSource chat_source_for(const std::string& wanted, const fs::path& tokenizer_path, const Tokenizer& tokenizer) {
  std::error_code ignored;
  const bool is_folder = fs::is_directory(tokenizer_path, ignored);
  const fs::path folder = is_folder ? tokenizer_path : tokenizer_path.parent_path();
  if (fs::is_regular_file(wanted, ignored)) return source_of(wanted, read_text(wanted), folder, tokenizer);
  if (!wanted.empty()) return chat_source(chat_format(wanted), tokenizer);
  if (is_gguf_path(tokenizer_path) && !is_folder)
    if (auto source = source_of_gguf(tokenizer_path, tokenizer)) return *source;
  if (is_folder)
    if (auto program = program_of(folder)) {
      ChatSource source = source_of(program->first, std::move(program->second), folder, tokenizer);
      source.of_folder = true;
      return source;
    }
  return chat_source(chat_format_of(tokenizer), tokenizer);
}

}  // namespace nought
