// What a store of tokens holds.
#pragma once

#include <cstdint>
#include <vector>

#include "support/temp_folder.h"

#include "nought/data/token_store.h"

namespace nought::test {

using Ids = std::vector<int32_t>;

inline Ids tokens_of(const TokenStore& store) {
  Ids ids(static_cast<size_t>(store.size()));
  store.read(0, ids);
  return ids;
}

inline std::vector<int64_t> starts_of(const TokenStore& store, Interval range) {
  std::vector<int64_t> starts;
  store.document_starts(range, starts);
  return starts;
}

}  // namespace nought::test
