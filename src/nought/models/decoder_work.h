// What the sections of a decoder share of some tokens. For the files of the decoder alone.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "nought/models/decoder.h"
#include "nought/parallel/vocabulary.h"

namespace nought {

struct Decoder::Work final : MicroBatchState {
  static Work& of(MicroBatchState& state) { return static_cast<Work&>(state); }
  static const Work& of(const MicroBatchState& state) { return static_cast<const Work&>(state); }

  Tensor ids;                          // [tokens] i32
  HeldIds held;                        // the same where ranks share the vocabulary
  std::vector<HeldIds> held_by_tiles;  // the same where tiles of the embedding have it
  HeldIds kept, replaced;              // where some rows of the embedding are replaced: ids of the others, and of those
  Sequences sequences;
  Tensor local_positions;                      // those of this rank's slice; without slices those of all tokens
  int64_t longest = 0;                         // tokens of the longest sequence, those in the cache included
  int64_t row_length = 0;                      // tokens of a row of the whole batch; 0: there is a cache
  std::optional<RopeTables> rope, local_rope;  // those that its keys rotate by
  std::optional<RopeTables> query_factors;     // what its queries are multiplied by
  Tensor row_keys;                             // see Tape::row_keys()
  const DecoderCache* cache = nullptr;
  std::vector<AdapterRows> adapter_rows;  // which of these tokens have chosen which adapter
  Batch part = {};                        // what this rank has of the batch, where ranks hold parts of sequences
  const Batch* batch = nullptr;           // of this rank's tokens, if there is a loss
  Batch placed = {};                      // the same where kernels read it
  double gradient_scale = 1;
  std::shared_ptr<RouterLog> log;  // null: nobody asks what routers choose
};

}  // namespace nought
