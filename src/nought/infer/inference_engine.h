// InferenceEngine: computes requests that come and go between steps together, each as if it were alone.
//
// A step computes at most max_batch_tokens tokens: first the next token of every sequence that generates, then prompts
// in the order in which they came, in chunks (Orca; vLLM's scheduler). On a CPU the tokens of a request are those that
// it would get alone, to the bit, whatever runs beside it. What prompts have in common at their beginning is computed
// once, and copied (Decoder::shares_beginnings()). Non-goals: threads, text, HTTP.
#pragma once

#include <deque>
#include <exception>
#include <memory>
#include <optional>
#include <vector>

#include "nought/grammar/token_constraint.h"
#include "nought/infer/cached_decoder.h"
#include "nought/infer/drafter.h"
#include "nought/infer/sampling.h"
#include "nought/infer/state_pool.h"

namespace nought {

enum class FinishReason : uint8_t { stop, length, cancelled, failed };

struct InferenceRequest {
  std::vector<int32_t> prompt = {};
  int64_t max_new_tokens = 128;  // 0: the prompt is computed, for its log-probabilities
  int64_t min_new_tokens = 0;    // no stop id is drawn before so many tokens
  SamplingParameters sampling = {};
  std::vector<int32_t> stop_ids = {};     // the sequence ends before one of these
  std::optional<int64_t> likeliest = {};  // given: each token comes with its log-probability and those of so many
  bool scores_prompt = false;             // tokens of the prompt come with theirs, too
  /// What is generated stays within it, and ends where nothing can follow.
  std::optional<TokenConstraint> constraint = {};
  /// Given: nothing is generated, and the listener receives an embedding of the prompt.
  std::optional<PoolingMode> pooling = {};
  int32_t adapter = kNoAdapter;  // which of the model's ModelAdapter::choices adds to it
};

struct TokenScore {
  int32_t id = 0;
  float log_probability = 0;
};
/// A token with what InferenceRequest::likeliest asks for: by the model's logits, before any penalty or temperature.
struct ScoredToken {
  int32_t id = 0;
  float log_probability = 0;
  std::vector<TokenScore> likeliest = {};  // the most probable first
};

/// Hears how a request goes, within InferenceEngine::step().
class RequestListener {
 public:
  virtual ~RequestListener() = default;
  /// Its prompt is computed from here on. `cached`: how many tokens of its prompt need no computing.
  virtual void on_start(int64_t /*cached*/) {}
  /// Receives, in order, each token of a scored prompt but the first.
  virtual void on_prompt_token(const ScoredToken& /*token*/) {}
  /// Receives a new token. Returns false to end the sequence with it.
  virtual bool on_token(const ScoredToken& token) = 0;
  /// Receives the embedding that InferenceRequest::pooling asks for: [hidden], not normalised.
  virtual void on_embedding(const std::vector<float>& /*values*/) {}
  /// It has ended, and hears nothing more. `error`: why it failed, or what the functions above threw. Throws nothing
  /// that the caller of step() is not to have.
  virtual void on_end(FinishReason /*reason*/, std::exception_ptr /*error*/) {}
};

class InferenceEngine {
 public:
  struct Options {
    int64_t capacity = 4096;             // the most tokens of a sequence, prompt and generated ones together
    int64_t sequences = 8;               // how many are computed together
    int64_t max_batch_tokens = 2048;     // how many tokens a step computes; more if more sequences than that generate
    std::optional<DType> kv_dtype = {};  // what the cache keeps; see Decoder::make_cache()
    Speculation speculation = {};        // whose guesses are computed together with the tokens before them

    CacheOptions cache() const { return {.capacity = capacity, .sequences = sequences, .kv_dtype = kv_dtype}; }
  };
  struct Counts {
    int64_t running = 0, waiting = 0;
    int64_t cached_tokens = 0;                     // in the cache, for running requests
    int64_t prompt_tokens = 0, reused_tokens = 0;  // of all requests so far; reused: those that needed no computing
    SpeculationCounts speculated = {};             // likewise
  };
  /// led: see CachedDecoder.
  InferenceEngine(Decoder& decoder, const Context& context, DType dtype, const Options& options,
                  Communicator* led = nullptr);

  /// ConfigError if the prompt is empty, has ids beyond the vocabulary, or does not fit the cache.
  void check_prompt(std::span<const int32_t> prompt) const;
  /// Adds a request, which begins when those before it have begun and a part of the cache is free. If a sequence of the
  /// cache begins like it, that beginning is not computed again. Returns its number. ConfigError
  /// as check_prompt() and SamplingParameters::validate().
  uint64_t submit(InferenceRequest request, std::shared_ptr<RequestListener> listener);
  /// Ends a request at once, and frees its part of the cache. Nothing happens if it has ended.
  void cancel(uint64_t number);
  void cancel_all();
  /// Computes one step. Returns false if there is nothing to compute. A request whose logits are broken fails alone; if
  /// the model fails, all that run fail with it, and the engine goes on; one that leads other ranks throws then.
  bool step();
  /// See CachedDecoder.
  void keep_alive() { cache_.keep_alive(); }
  void dismiss() { cache_.dismiss(); }

  Counts counts() const;
  const Options& options() const { return options_; }

 private:
  struct Sequence {
    uint64_t number = 0;
    InferenceRequest request;
    std::shared_ptr<RequestListener> listener;
    int64_t slot = -1;               // its sequence of the cache
    std::vector<int32_t> next = {};  // tokens to compute: what is left of the prompt, or the last new one and guesses
    std::vector<int32_t> produced = {};
    int64_t fed = 0;      // tokens of `next` that this step computes
    int64_t guesses = 0;  // how many tokens to guess at most: fewer where guesses were wrong
    bool waits = false;   // for others that compute the beginning of its prompt
  };
  void admit(int64_t room);
  /// The free part of the cache whose sequence has most in common with the prompt; of several the longest unused.
  int64_t take_slot(const InferenceRequest& request);
  /// How many tokens a prompt can have from a part of the cache.
  int64_t common_tokens_in(int64_t slot, const InferenceRequest& request) const;
  /// Begins the prompt of a sequence that has a part of the cache: with what another one has in common with it, if that
  /// is more. Waits if one of those that run before it is about to compute more. False if the listener failed.
  bool begin(Sequence& sequence, std::span<const Sequence> before);
  /// Begins the sequences that have waited, in their order, unless they wait on.
  void begin_waiting();
  void plan_step();
  /// How many tokens may be guessed behind the next one of a sequence.
  int64_t most_guesses(const Sequence& sequence) const;
  /// Adds guesses to the tokens of sequences that generate.
  void add_guesses();
  /// Computes the first of the waiting requests, which asks for an embedding, in a part of the cache that is free.
  void embed();
  std::vector<float> embedding_of(const Sequence& sequence);
  /// Computes this step's tokens. `rows`: which rows of logits each of running_ gets. Sequences of one adapter are
  /// neighbours, so that its products are one for all of them.
  Tensor compute(std::vector<Interval>& rows);
  /// Reads the rows of logits that a sequence got. False if it has ended.
  bool advance(Sequence& sequence, std::span<float> logits, int64_t rows);
  /// Draws the next token of a sequence, whose tokens so far are `ids`; the reason if it has ended with that.
  std::optional<FinishReason> draw(Sequence& sequence, std::span<float> logits, std::span<const int32_t> ids);
  /// Draws behind each token that this step has computed, as long as it draws what was guessed, and takes the rest out
  /// of the cache.
  std::optional<FinishReason> draw_guessed(Sequence& sequence, std::span<float> logits);
  void score_prompt(const Sequence& sequence, std::span<const float> logits, int64_t rows) const;
  void end(Sequence& sequence, FinishReason reason, std::exception_ptr error = {});
  void fail_all(const std::exception_ptr& error);
  const std::vector<int32_t>& held(const Sequence& sequence) const { return cache_.ids(sequence.slot); }

  Context context_;
  Options options_;
  CachedDecoder cache_;
  std::deque<Sequence> waiting_;
  std::vector<Sequence> running_;  // in the order in which they began
  std::deque<int64_t> free_;       // parts of the cache, the longest unused first
  uint64_t last_number_ = 0;
  int64_t prompt_tokens_ = 0, reused_tokens_ = 0;
  SpeculationCounts speculated_;
};

/// The token with its log-probability, and the `count` most probable ones; of equal ones the lower id comes first.
ScoredToken score_token(std::span<const float> logits, int32_t id, int64_t count);

}  // namespace nought
