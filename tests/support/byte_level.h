// A byte-level tokenizer.json without merges: every byte is a token, and whatever markers a test wants are too.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "support/temp_folder.h"
#include <nlohmann/json.hpp>

#include "nought/text/tokenizer.h"
#include "nought/text/vocabulary.h"

namespace nought::test {

/// Ids: the bytes, then the markers in their order, which may take the white space behind them; the last of them ends a
/// text.
inline std::unique_ptr<Tokenizer> byte_level_tokenizer(const TempFolder& folder,
                                                       const std::vector<std::string>& markers,
                                                       bool strip_right = false) {
  nlohmann::json vocab = nlohmann::json::object(), added = nlohmann::json::array();
  for (int byte = 0; byte < 256; ++byte) vocab[bytes_to_characters(std::string(1, static_cast<char>(byte)))] = byte;
  for (const std::string& marker : markers)
    added.push_back({{"id", 256 + added.size()}, {"content", marker}, {"special", true}, {"rstrip", strip_right}});
  const nlohmann::json json{{"added_tokens", added},
                            {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
                            {"decoder", {{"type", "ByteLevel"}}},
                            {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", nlohmann::json::array()}}}};
  folder.write("tokenizer_config.json", nlohmann::json{{"eos_token", markers.back()}}.dump());
  return make_tokenizer(folder.write("tokenizer.json", json.dump()).string());
}

}  // namespace nought::test
