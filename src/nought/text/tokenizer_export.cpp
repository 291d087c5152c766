#include "nought/text/tokenizer_export.h"

#include "nought/base/error.h"
#include "nought/base/json.h"
#include "nought/io/atomic_file.h"
#include "nought/io/files.h"
#include "nought/text/gguf_vocabulary.h"
#include "nought/text/tokenizer_files.h"

namespace nought {

namespace fs = std::filesystem;

namespace {

constexpr const char* kTokenizerConfig = "tokenizer_config.json";
constexpr const char* kTemplateFile = "chat_template.jinja";

void copy_if_there(const fs::path& from, const fs::path& to, const char* name) {
  std::error_code error;
  if (fs::is_regular_file(from / name, error)) write_text_atomically(to / name, read_bytes(from / name));
}

/// tokenizer_config.json in the order of its keys; an empty object if there is none.
OrderedJson config_in(const fs::path& folder) {
  std::error_code error;
  if (!fs::is_regular_file(folder / kTokenizerConfig, error)) return OrderedJson::object();
  OrderedJson config = OrderedJson::parse(read_bytes(folder / kTokenizerConfig), nullptr, /*allow_exceptions=*/false);
  require<IoError>(config.is_object(), "{}: not a JSON object", (folder / kTokenizerConfig).string());
  return config;
}

/// Writes the template, and what it reads.
void write_template(const TokenizerExport& files, const fs::path& to) {
  OrderedJson config = config_in(to);
  for (const auto& [name, text] : files.specials)
    if (!config.contains(name) || config[name].is_null()) config[name] = text;
  config["chat_template"] = files.chat_template;
  write_text_atomically(to / kTokenizerConfig, config.dump(2) + "\n");
  std::error_code error;
  fs::remove(to / kTemplateFile, error);  // readers would prefer it
}

}  // namespace

void export_tokenizer(const TokenizerExport& files, const fs::path& to) {
  if (files.tokenizer.empty()) return;
  std::error_code error;
  const bool bytes = files.tokenizer == "bytes";
  const std::string name = bytes ? files.tokenizer : tokenizer_path(files.tokenizer);
  const bool is_gguf = is_gguf_path(name) && fs::is_regular_file(name, error);
  const fs::path folder = fs::is_directory(name, error) ? fs::path(name) : fs::path(name).parent_path();
  if (is_gguf && !holds_gguf_vocabulary(name)) return;
  if (!bytes && !is_gguf && (!holds_tokenizer(folder) || fs::equivalent(folder, to, error))) return;
  if (bytes) {
    const OrderedJson config{{"tokenizer_class", "PreTrainedTokenizerFast"},
                             {"eos_token", byte_separator()},
                             {"clean_up_tokenization_spaces", false}};
    write_text_atomically(to / kTokenizerConfig, config.dump(2) + "\n");
    fs::remove(to / kTemplateFile, error);
  } else if (is_gguf) {
    write_text_atomically(
        to / kTokenizerConfig,
        gguf_tokenizer_config(GgufFile(name)).dump(2, ' ', false, OrderedJson::error_handler_t::replace) + "\n");
    fs::remove(to / kTemplateFile, error);
  } else {
    for (const char* file : {"vocab.json", "merges.txt", "vocab.txt", "tokenizer.model", kTokenizerConfig,
                             "special_tokens_map.json", "added_tokens.json", "chat_template.json", kTemplateFile})
      copy_if_there(folder, to, file);
  }
  if (bytes || is_gguf || !files.add_special_tokens.empty()) {
    write_text_atomically(to / "tokenizer.json", tokenizer_json_with(name, files.add_special_tokens).bytes);
  } else {
    copy_if_there(folder, to, "tokenizer.json");
  }
  if (!files.chat_template.empty()) write_template(files, to);
}

}  // namespace nought
