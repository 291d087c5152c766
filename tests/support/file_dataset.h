// dataset_of(): files as one source of a dataset.
#pragma once

#include <filesystem>
#include <span>
#include <vector>

#include "nought/data/dataset.h"

namespace nought::test {

inline TokenDataset dataset_of(const std::vector<std::filesystem::path>& files, const Tokenizer& tokenizer,
                               int64_t seq_length) {
  const DataSource source{files, 0};
  return TokenDataset::from_sources(std::span(&source, 1), tokenizer, {.seq_length = seq_length});
}

}  // namespace nought::test
