// write_answers(): the answers that a model writes itself to prompts, several to each, to learn from them.
//
// Design goals: an answer is a function of the weights, its prompt and its seed, whatever is written beside it and on
// whatever rank. Non-goals: what answers are worth (rewards), and what is learned from them (train/policy_run.h).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "nought/infer/sampling.h"
#include "nought/models/decoder.h"

namespace nought {

struct AnswerRequest {
  std::span<const int32_t> prompt;
  uint64_t seed = 0;
};

struct RolloutOptions {
  int64_t max_completion_length = 512;
  SamplingParameters sampling = {};    // each answer has a seed of its own
  std::vector<int32_t> stop_ids = {};  // an answer ends with one of these, which belongs to it
  int64_t sequences = 64;              // how many are written together
  std::optional<DType> kv_dtype = {};  // what the cache keeps; see Decoder::make_cache()
};

/// The tokens of the answer to each request. Ranks that gather parameters together give the same requests. ConfigError
/// if a prompt and its answer exceed what the model knows. The cache of keys and values lives as long as the call.
/// Neighbours with the same prompt have it computed once.
std::vector<std::vector<int32_t>> write_answers(Decoder& decoder, const Context& context, DType dtype,
                                                std::span<const AnswerRequest> requests, const RolloutOptions& options);

/// All ranks get the answers that each of them has written, in the order of ranks. most: on any rank. What travels has
/// a size that does not depend on what they say: see bytes_of_answers(). Collective.
std::vector<std::vector<int32_t>> answers_of_ranks(Communicator& ranks, const Context& context,
                                                   const std::vector<std::vector<int32_t>>& mine, int64_t most,
                                                   int64_t max_completion_length);
/// What a rank sends with `most` answers.
int64_t bytes_of_answers(int64_t most, int64_t max_completion_length);

/// Runs the passes of write_answers() that need the most memory, of `requests` with prompts of so many tokens, of which
/// `generations` neighbours have the same.
void dry_run_answers(Decoder& decoder, const Context& context, DType dtype, int64_t prompt_tokens, int64_t requests,
                     int64_t generations, const RolloutOptions& options);

}  // namespace nought
