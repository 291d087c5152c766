// The readers of files from elsewhere, each as a function of nothing but bytes, for libFuzzer and for the replay of the
// corpus.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace nought::fuzz {

struct Target {
  std::string_view name;  // of its folder in tests/fuzz/corpus
  /// Reads the bytes as a file. They are accepted, or refused with one line; anything else ends the process.
  void (*run)(std::span<const std::byte> bytes);
};

/// safetensors: every tensor that the header promises can be read.
void read_safetensors(std::span<const std::byte> bytes);
/// GGUF: metadata, tokenizer and every block of a file that is accepted can be read.
void read_gguf(std::span<const std::byte> bytes);
/// model.safetensors.index.json, of a folder that holds one shard.
void read_weight_index(std::span<const std::byte> bytes);
/// .metadata of torch.distributed.checkpoint, of a folder whose ranks' files hold these bytes too.
void read_dcp_metadata(std::span<const std::byte> bytes);
void read_parquet(std::span<const std::byte> bytes);
/// The states that a rank of DeepSpeed saved, as those of the model and as the optimizer's.
void read_deepspeed_states(std::span<const std::byte> bytes);
/// config.json: what is accepted is written and read again as the same.
void read_model_config(std::span<const std::byte> bytes);
/// adapter_config.json: what is accepted is written and read again as the same, and chooses layers of a model.
void read_adapter_config(std::span<const std::byte> bytes);
/// adapter_model.safetensors of an adapter of a small model: every value of what is accepted can be read, and is
/// finite.
void read_adapter_weights(std::span<const std::byte> bytes);
/// The state that bitsandbytes writes beside codes of 4 bits, in a folder whose other tensors are whole: every weight
/// of what is accepted can be read.
void read_quant_state(std::span<const std::byte> bytes);
/// tokenizer.json: what is accepted encodes and decodes.
void read_tokenizer(std::span<const std::byte> bytes);
/// A chat template: what is accepted writes a conversation within its bounds, or says why not.
void read_chat_template(std::span<const std::byte> bytes);
/// A file of the flight recorder, of these bytes and zeros behind them: what is accepted is told, alone and beside the
/// file of another rank.
void read_flight_file(std::span<const std::byte> bytes);
/// manifest.json of a checkpoint, as it is and with the checksum that a stranger would write: what is accepted is shown
/// and loaded.
void read_checkpoint_manifest(std::span<const std::byte> bytes);
/// A config of accelerate: YAML, which becomes a ds_config.json.
void read_accelerate_yaml(std::span<const std::byte> bytes);
/// JSON lines or text, compressed or not: every document that is accepted passes through all filters.
void read_documents(std::span<const std::byte> bytes);
/// A grammar in GBNF: what is accepted writes a word.
void read_gbnf(std::span<const std::byte> bytes);
/// A regular expression, which texts match whole or in a part: what is accepted writes a word.
void read_regex(std::span<const std::byte> bytes);
/// A JSON schema: what is accepted writes a word.
void read_json_schema(std::span<const std::byte> bytes);

/// The body of a request, as each API of a server reads it: what is accepted asks for something that can be answered.
void read_api_request(std::span<const std::byte> bytes);
/// What comes to a server on loopback, and then ends: it answers in HTTP, or closes.
void read_http_bytes(std::span<const std::byte> bytes);

inline constexpr Target kTargets[] = {{"safetensors", read_safetensors},
                                      {"gguf", read_gguf},
                                      {"weight_index", read_weight_index},
                                      {"dcp_metadata", read_dcp_metadata},
                                      {"parquet", read_parquet},
                                      {"deepspeed_states", read_deepspeed_states},
                                      {"model_config", read_model_config},
                                      {"adapter_config", read_adapter_config},
                                      {"adapter_weights", read_adapter_weights},
                                      {"quant_state", read_quant_state},
                                      {"tokenizer", read_tokenizer},
                                      {"chat_template", read_chat_template},
                                      {"flight_file", read_flight_file},
                                      {"checkpoint_manifest", read_checkpoint_manifest},
                                      {"accelerate_yaml", read_accelerate_yaml},
                                      {"documents", read_documents},
                                      {"gbnf", read_gbnf},
                                      {"regex", read_regex},
                                      {"json_schema", read_json_schema},
                                      {"api_request", read_api_request},
                                      {"http_bytes", read_http_bytes}};

}  // namespace nought::fuzz
