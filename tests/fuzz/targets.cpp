#include "targets.h"

#include <fstream>

#include "memory_file.h"
#include "support/temp_folder.h"
#include <nlohmann/json.hpp>

#include "nought/base/json.h"
#include "nought/chat/chat_template.h"
#include "nought/io/gguf_file.h"
#include "nought/models/config.h"
#include "nought/models/gguf_config.h"
#include "nought/models/weight_files.h"
#include "nought/text/gguf_vocabulary.h"
#include "nought/text/tokenizer_files.h"
#include "nought/text/unicode.h"

namespace nought::fuzz {

namespace fs = std::filesystem;

void read_gguf(std::span<const std::byte> bytes) {
  const MemoryFile memory_file(bytes);
  accept_or_refuse([&] {
    const GgufFile file(memory_file.path());
    std::vector<float> values;
    for (const GgufEntry& entry : file.entries()) {
      const WeightFormat& format = weight_format(entry.type);
      values.resize(static_cast<size_t>(entry.numel()));
      decode_blocks(entry.type, file.raw(entry).data(), entry.numel() / format.block, values.data());
    }
    gguf_config(file);
  });
  accept_or_refuse([&] {
    const auto tokenizer = read_gguf_tokenizer(memory_file.path());
    const std::vector<int32_t> ids = tokenizer->encode("The 1st caf\xc3\xa9\n\n  isn't \xff <s>", {.specials = true});
    for (const int32_t id : ids)
      if (id < 0 || id >= tokenizer->vocab_size()) give_up("gguf", "an id outside of the vocabulary");
    tokenizer->decode(ids);
    gguf_tokenizer_json(GgufFile(memory_file.path()));
  });
}

void read_weight_index(std::span<const std::byte> bytes) {
  static const test::TempFolder folder;
  static const bool has_shard = [] {
    const std::string header = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
    const uint64_t length = header.size();
    std::ofstream shard(folder / "s.safetensors", std::ios::binary);
    shard.write(reinterpret_cast<const char*>(&length), sizeof(length)) << header << "12345678";
    return shard.good();
  }();
  if (!has_shard) give_up("a shard cannot be written", folder.path().c_str());
  folder.write("model.safetensors.index.json", text_of(bytes));
  accept_or_refuse([&] {
    const WeightFiles files(folder.path());
    static const auto memory = Memory::create();
    for (const TensorEntry& entry : files.entries()) files.load(entry.name, *memory);
  });
}

void read_model_config(std::span<const std::byte> bytes) {
  const nlohmann::json json = nlohmann::json::parse(text_of(bytes), nullptr, false);
  if (json.is_discarded()) return;
  accept_or_refuse([&] {
    ModelConfig config = ModelConfig::from_json(json);
    ModelConfig again = ModelConfig::from_json(config.to_hf_json(DType::f32));
    config.notes.clear(), again.notes.clear();
    if (again != config) give_up("the config changes when it is written and read", json.dump().c_str());
  });
}

void read_tokenizer(std::span<const std::byte> bytes) {
  const MemoryFile file(bytes);
  accept_or_refuse([&] {
    const auto tokenizer = read_tokenizer_json(file.path());
    const std::vector<int32_t> ids = tokenizer->encode("The 1st caf\xc3\xa9\n\n  isn't \xff <s>", {.specials = true});
    for (const int32_t id : ids)
      if (id < 0 || id >= tokenizer->vocab_size()) give_up("tokenizer", "an id outside of the vocabulary");
    tokenizer->decode(ids);
  });
}

void read_chat_template(std::span<const std::byte> bytes) {
  static const auto tokenizer = make_tokenizer("bytes");
  static const auto value = [](const char* json) {
    return jinja::value_of(nlohmann::ordered_json::parse(json), jinja::kData);
  };
  static const std::vector<ChatMessage> talk{
      {"system", "Be kind."},
      {"user", " Hi? <|im_end|> \xC3\xA9"},
      {"assistant", "", value(R"({"tool_calls": [{"id": "1", "function": {"name": "f", "arguments": {"x": 1.5}}}]})")},
      {"tool", "[1]", value(R"({"name": "f"})")},
      {"assistant", "<think>a</think>b"}};
  static const jinja::Value variables =
      value(R"({"tools": [{"type": "function", "function": {"name": "f", "parameters": {"x": {"type": "int"}}}}]})");
  accept_or_refuse([&] {
    const ChatTemplate chat({"fuzz", std::string(text_of(bytes)), {{"bos_token", "<s>"}, {"eos_token", "</s>"}}},
                            *tokenizer);
    const jinja::Rendered text = chat.text(talk, variables, true, std::tm{});
    if (!is_valid_utf8(text.str())) give_up("chat", "a text that is no UTF-8");
    const ChatTemplate::Tokens tokens = chat.conversation(talk, variables);
    if (tokens.ids.size() != tokens.targets.size()) give_up("chat", "targets");
  });
}

}  // namespace nought::fuzz
