// Decoder: a decoder-only transformer, built from a ModelConfig. Families differ in options, and not in code. So do
// encoders: their tokens see later ones, and there is no head.
//
// Its Units are the embedding, each block, and the head. The head has the final norm and the output projection; a tied
// model uses the weight of the embedding for the projection.
//
// It has more than 45 members in six files: the sections, the vocabulary (decoder_vocabulary.cpp), the blocks
// (decoder_blocks.cpp), the stages of a pipeline (decoder_stages.cpp), the cache (decoder_cache.cpp) and the heads that
// score (decoder_scores.cpp) declare Units of one model and read the same ranks, tables and logs; what layers are made
// with is in BlockOptions.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "nought/models/block_options.h"
#include "nought/models/config.h"
#include "nought/models/names.h"
#include "nought/nn/delta_net.h"
#include "nought/nn/distil_objective.h"
#include "nought/nn/model.h"
#include "nought/nn/objective.h"
#include "nought/nn/short_conv.h"
#include "nought/parallel/model_ranks.h"
#include "nought/parallel/vocabulary_tiles.h"

namespace nought {

/// The keys and values, or the states, of every layer, for sequences of at most `capacity` tokens. Sequence s has the
/// rows from s * capacity on.
struct DecoderCache {
  std::vector<KvCache> layers;     // of those that attend
  std::vector<StateCache> states;  // of the others
  int64_t capacity = 0;
  std::vector<std::vector<int32_t>> ids;  // for each sequence, the tokens whose keys and values it holds
  std::vector<int32_t> adapters;          // and the adapter that they were computed with: see NextTokens
};

/// A sequence that is computed without one of several adapters.
inline constexpr int32_t kNoAdapter = -1;

/// The next tokens of one sequence of a cache.
struct NextTokens {
  int64_t sequence = 0;
  std::span<const int32_t> ids;
  bool wants_every = false;      // whether the logits after each of them are asked for, not after the last alone
  int32_t adapter = kNoAdapter;  // which of ModelAdapter::choices adds to them
};

class Decoder final : public Model {
 public:
  /// recompute: what the backward pass computes again of the blocks. fp8: how the linear layers of the blocks round
  /// their factors; those of experts do not. ranks: over which its layers are cut; the mesh of what stores the model
  /// has the same.
  explicit Decoder(const ModelConfig& config, const RecomputeOptions& recompute = {}, const Fp8Options& fp8 = {},
                   const ModelRanks& ranks = {});

  Var loss(Tape& tape, const Batch& batch, double gradient_scale) override;
  /// The embedding, the blocks, the head with the loss, and with experts what the loss of their routers adds; where
  /// ranks hold different layers, those of this one.
  std::vector<Section> sections() override;
  std::vector<Chunk> chunks() override;
  Shape hidden_shape(const MicroBatchState& state) const override;
  std::shared_ptr<MicroBatchState> begin(const Context& context, const Batch& batch, double gradient_scale) override;
  /// What loss() computes from the logits; cross-entropy unless this is called.
  void set_objective(std::shared_ptr<const Objective> objective) { objective_ = std::move(objective); }
  /// Passes over batches that record nothing attend to keys and values as a cache of this dtype has them: so an
  /// evaluation measures what it rounds. See make_kv_cache().
  void evaluate_as_cached(DType kv_dtype) { kv_dtype_ = kv_dtype; }
  /// Passes over batches that record nothing compute the model without what its adapter adds.
  void leave_out_adapter(bool leave_out) { leaves_out_adapter_ = leave_out; }
  /// The logits of every token of the batch: [rows * length, vocabulary]. The batch needs no targets. Not of a
  /// classifier, whose scores a SequenceObjective gets.
  Tensor logits(const Context& context, const Batch& batch);
  /// The hidden states that logits are made of, normalised, of every token of the batch: [rows * length, hidden].
  Tensor hidden(const Context& context, const Batch& batch);
  /// Likewise what the head makes logits of, divided by `temperature`: [rows * length, width].
  Tensor head_inputs(const Context& context, const Batch& batch, double temperature);
  /// Runs `body` while this rank has the head: logits_of() makes the logits of some rows of head_inputs(). On ranks
  /// that have it. Collective where it is gathered.
  void with_head(const Context& context, const std::function<void(const LogitsOfRows& logits_of)>& body);
  /// Appends tokens to several sequences of the cache. Returns the logits after the last token of each, or after each
  /// token that wants them: [next.size() or more, vocabulary]. A sequence gets the logits that it would get alone, on a
  /// CPU to the bit. It keeps the adapter of its first tokens; neighbours that have the same one share its products.
  Tensor next_logits(const Context& context, std::span<const NextTokens> next, DecoderCache& cache);
  /// Likewise the hidden states that logits are made of, normalised: [next.size() or more, hidden].
  Tensor next_hidden(const Context& context, std::span<const NextTokens> next, DecoderCache& cache);
  /// Removes a sequence's tokens beyond its first `count` from the cache. Returns how many are left. That is 0 if the
  /// sequence was beyond RopeOptions::switch_length() and would no longer be: its keys were rotated for a longer
  /// sequence. It is 0 as well if any are removed and layers keep states, of which they have the last alone.
  int64_t keep_first(DecoderCache& cache, int64_t sequence, int64_t count) const;
  /// Whether the first tokens of a sequence leave in the cache what they leave there alone, whatever follows.
  bool shares_beginnings() const { return !config_.keeps_states() && config_.rope.switch_length() == 0; }
  /// Gives a sequence of the cache the first `count` tokens of another one in place of its own. Where
  /// shares_beginnings().
  void copy_first(const Context& context, DecoderCache& cache, int64_t from, int64_t to, int64_t count) const;
  /// An empty cache of `sequences` sequences of up to `capacity` tokens each. dtype: in which the model computes.
  /// kv_dtype: in which keys and values are kept, see make_kv_cache(); not given: in `dtype`, as states always are.
  DecoderCache make_cache(const Context& context, int64_t capacity, DType dtype, int64_t sequences = 1,
                          std::optional<DType> kv_dtype = {}) const;
  void set_updates(int64_t updates) override;
  Tensor step_values(const Context& context) override;
  void finish_step(std::span<const double> values) override;
  std::vector<double> state() const override;
  bool restore(std::span<const double> state) override;
  SwapTraffic file_traffic() const override { return saved_inputs_.file_traffic(); }

  /// How its linear layers round what they multiply; null: not at all.
  const Fp8Recipe* products() const { return fp8_.get(); }
  const ModelConfig& config() const { return config_; }
  /// ConfigError if the model has learned fewer positions than a sequence of that many tokens has.
  void require_positions(int64_t length) const;
  /// ConfigError if it would divide logits that are capped.
  void require_temperature(double temperature) const;
  /// The choices of the routers in a micro-batch, of which begin() made the state; null without experts.
  static const RouterLog* router_log(const MicroBatchState& state);
  /// Their choices in the last step, over all ranks and micro-batches; empty without experts.
  const RouterLoads& router_loads() const { return router_loads_; }

 private:
  struct Block {
    Unit* unit = nullptr;
    Norm attention_norm, attention_post_norm, mlp_norm, mlp_post_norm;
    SelfAttention attention;
    std::optional<ShortConvLayer> conv;  // instead of attention
    std::optional<DeltaNet> delta;       // likewise
    Mlp mlp;
    std::optional<Moe> experts;  // instead of mlp
    int64_t router = 0;          // its index in the log of routers
    bool local = false;          // whether it rotates by local_rope_
    bool rotated = true;         // whether it rotates at all
  };
  /// What an adapter adds to the table, [vocabulary, rank] and [hidden, rank], or to the head, [rank, hidden] and
  /// [vocabulary, rank]; undefined: nothing.
  struct VocabularyFactors {
    ParameterView a, b;
    double scale = 1;
  };
  /// What the sections share of some tokens.
  struct Work;
  /// Which tokens of a batch a classifier scores.
  struct ScoredTokens;
  Block make_block(int64_t index);
  BlockOptions block_options() const { return {config_, all_ranks_, recompute_, fp8_}; }
  /// Adds tiles named UNIT.NAME.0 and so on to a Unit, which cut what has so many features or rows; none where Units
  /// have no tiles.
  std::vector<Unit*> tiles_of(Unit& unit, const char* name, int64_t extent);
  /// Whether only the gradient of what a block's MLP gives is asked for when the block runs again.
  bool mlp_is_unread(const Block& block) const {
    return !block.experts && config_.norm_placement == NormPlacement::pre;
  }
  /// ids: i32, the tokens of all spans, or what this rank has of `parts` of them; `known` are the same where host code
  /// reads them.
  std::shared_ptr<Work> work_on(const Context& context, const Tensor& ids, std::span<const int32_t> known,
                                std::vector<AttentionSpan> spans, const ContextTokens& parts = {}) const;
  /// The tokens of a batch over the ranks that hold parts of its rows. ConfigError if a rank would have none of a row.
  ContextTokens parts_of(const Batch& batch) const;
  /// See Tape::row_keys(): of each token of this rank's rows, as its own slice and the others have them.
  Tensor row_keys_of(const Context& context, const Batch& batch, const Sequences& sequences) const;
  /// Fills in each token's position: its row of the learned positions or of the tables of rope_.
  void set_positions(const Context& context, const Sequences& sequences) const;
  /// Makes tables for the longest sequence, if it is the longest so far, and notes them in `work`.
  void prepare_rotation(const Context& context, Work& work, DType dtype);
  /// The tokens whose rows of the embedding and whose logits this rank has.
  Interval held_tokens() const { return ranks_.part(config_.vocab_size); }
  /// With an adapter: nothing but what it adds is trained.
  void freeze_base();
  /// Declare the rows that tokens look up, and those that make logits.
  void add_table();
  VocabularyFactors table_factors(const ModelAdapter& adapter);
  /// Declares the rows that replace those of some tokens in a layer of the vocabulary.
  TokenRows token_rows(Unit& unit, const std::string& layer);
  /// Which tokens of a batch look up rows of the table, and which rows that replace some.
  void choose_rows(const Context& context, std::span<const int32_t> ids, Work& work) const;
  /// Declares a product between rows of the vocabulary and hidden states; nothing where they have the same width.
  ParameterView add_projection(Unit& unit, const std::string& name, int64_t in, int64_t out);
  void add_head_adapters();
  VocabularyFactors head_factors(const ModelAdapter& adapter);
  /// What an adapter and a bias add to the logits of x; what the adapter does is the same on all ranks that share the
  /// head.
  AddedLogits added_logits(Tape& tape, const Var& x) const;
  void add_head_weight();
  Section embedding_section();
  /// The rows that tokens look up, with what an adapter adds to them.
  Var look_up(Tape& tape, const Work& work);
  Section block_section(const Block& block);
  /// What a block attends to: null without a cache. `passing` is that of a pass that evaluate_as_cached() is about.
  const KvCache* cache_of(const Tape& tape, const Work& work, size_t index, DType dtype, KvCache& passing) const;
  /// What a branch adds to the residual stream.
  Var scaled_branch(Tape& tape, const Var& branch) const;
  Section head_section();
  /// The sum of the losses of the logits, times the batch's weights. `placed` is the batch where kernels read it.
  /// The numbers of each target that somebody wants, where they are defined; where ranks share the vocabulary, this
  /// rank's parts of them: the losses, and what entropies are the difference of (entropy_parts()).
  struct TargetNumbers {
    Tensor losses = {}, logs = {}, means = {};
  };
  Var head_loss(Tape& tape, const Var& normed, const Work& work, const Batch& batch, const Batch& placed,
                const TargetNumbers& numbers);
  /// The loss of whole sequences: the logits are made twice, and the host reads the losses of their tokens between.
  Var sequence_loss(Tape& tape, const Var& normed, const Work& work, const WeighedObjective& objective);
  /// The head of a classifier, which is whole on every rank.
  void add_score_head();
  /// The states that it scores: one of each sequence, or what it makes of all of them.
  Var scored_states(Tape& tape, const Var& all, const ScoredTokens& scored) const;
  /// The scores of sequences by the states of their last tokens, which the host reads, and their loss.
  Var score_loss(Tape& tape, const Var& normed, const Work& work);
  /// What logits are products of: the hidden states, normalised, and divided by what divides the logits.
  Var head_input(Tape& tape, const Var& hidden, double temperature = 1) const;
  /// The ranks that count choices together, in the loss that balances experts.
  Communicator& balance_ranks() const {
    return config_.experts->balances_by_rank ? alone_.world() : mesh().group(Group::balance);
  }
  /// Adds the auxiliary loss of the routers to the loss.
  Section balance_section();
  /// Keeps the log of the routers for step_values(), and tells the other stages of it. last: what follows gives the
  /// loss.
  Section counting_section(bool last);
  /// The stage whose Unit this is.
  int stage_of(size_t unit) const;
  /// Units that are no tiles.
  int64_t whole_units() const;
  /// Adds a Unit, which is held where its stage is, and by a second stage if that reads it too.
  Unit& add_staged_unit(std::string name, std::optional<int> copy = {});
  /// What the stage has of the sections up to the hidden states before the final norm, [tokens, hidden]. With full
  /// recompute, blocks run in checkpoints.
  std::vector<Section> stack(int stage = 0);
  /// The places of the stages beside it, and whether anything is trained below them.
  Chunk chunk_of(int stage) const;
  /// Runs the stack, and what follows it, through all stages: the tensor that `head` makes of the hidden states, of
  /// this shape. Every rank gets it.
  using HeadOfStack = std::function<Tensor(const Var& hidden)>;
  /// What `head` makes of every token of a batch: [rows * length, columns].
  Tensor run_batch(const Context& context, const Batch& batch, int64_t columns,
                   const std::function<Tensor(Tape& tape, const Var& hidden)>& head);
  Tensor run_stages(Tape& tape, const std::shared_ptr<Work>& work, const Shape& shape, const HeadOfStack& head);
  /// Appends tokens to the cache. Returns what `head` makes of the hidden states that are asked for, `columns` of each.
  using HeadOfRows = std::function<Tensor(Tape& tape, const Var& rows)>;
  Tensor next_rows(const Context& context, std::span<const NextTokens> next, DecoderCache& cache, int64_t columns,
                   const HeadOfRows& head);
  /// The logits of hidden states, the same that the loss is computed from.
  Tensor head_logits(Tape& tape, const Var& hidden);
  /// This rank's columns of the logits of what head_input() gives, within the head's Unit; and those of all ranks.
  Tensor logits_part(Tape& tape, const Var& input);
  Tensor whole_logits(const Context& context, const Tensor& part) const;
  Tensor head_hidden(Tape& tape, const Var& hidden);

  ModelConfig config_;
  ModelRanks all_ranks_;
  TensorRanks ranks_;  // those that share matrices
  PipelineRanks pipeline_;
  std::vector<size_t> stage_begins_;  // the first Unit of each stage, and their number
  RecomputeOptions recompute_;
  SavedInputs saved_inputs_;
  std::shared_ptr<const Objective> objective_ = default_objective();
  std::shared_ptr<Fp8Recipe> fp8_;  // null: nothing is rounded
  Unit* embedding_;
  ParameterView tokens_, positions_, token_types_, head_weight_, head_bias_;
  ParameterView score_layer_, score_layer_bias_;  // of a classifier's head: [hidden, hidden], [hidden]
  Norm score_norm_;
  Norm embedding_norm_;
  ParameterView project_in_, project_out_;                       // see ModelConfig::projected_size
  VocabularyFactors table_added_, head_added_;                   // what an adapter adds to tokens_, and to the logits
  std::vector<VocabularyFactors> table_choices_, head_choices_;  // the same of each of several adapters
  TokenRows table_rows_, head_rows_;                             // what replaces some rows of both
  VocabularyTiles table_tiles_, head_tiles_;  // instead of tokens_ and head_weight_, where Units have tiles
  std::vector<Block> blocks_;
  Unit* head_;
  Norm final_norm_;
  std::optional<RopeTables> rope_, local_rope_, query_factors_;  // made for the longest sequence so far
  int64_t rope_length_ = 0;  // if it decides how tokens rotate: that of the rows they are made for
  int64_t num_routers_ = 0;
  bool leaves_out_adapter_ = false;
  std::optional<DType> kv_dtype_;  // see evaluate_as_cached()
  Mesh alone_;                     // this rank without others
  RouterLoads counted_;            // this rank's, in the step that runs
  RouterLoads router_loads_;       // see router_loads()
};

}  // namespace nought
