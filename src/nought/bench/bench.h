// The measurements of `nought bench`. Each function returns figures, each beside the limit of the machine that bounds
// it.
//
// Design goals: a figure is a ratio to a limit that was measured in the same minute on the same threads. The code that
// is measured is the code that trains.
// Non-goals: absolute claims.
#pragma once

#include <functional>
#include <optional>

#include "nought/autograd/tape.h"
#include "nought/bench/report.h"
#include "nought/comm/communicator.h"
#include "nought/train/trial_steps.h"

namespace nought {

/// Rates that a rank cannot exceed. Each call measures anew, on the rank's OpenMP threads.
struct Limits {
  std::function<double(DType)> matrix;  // FLOP/s of register-only products
  std::function<double()> memory;       // B/s of a triad
};
Limits measured_limits();

/// Matrix products against the matrix peak, in FLOP: those of a decoder's layer (forward and both backward ones), of
/// its head, and small ones. Then the head with its loss, and one token times a weight, dense and of 8-bit codes,
/// against a triad.
std::vector<Figure> bench_products(const Context& context, const Limits& limits, DType dtype, int samples);

struct HeadShape {
  int64_t tokens = 4096, vocabulary = 50304, hidden = 768;
};
/// The head with its loss, forward and backward, against its three products alone over all tokens at once. Its fact is
/// the largest workspace, which holds logits and losses.
Figure bench_head(const Context& context, DType dtype, int samples, const HeadShape& shape = {});

/// Causal attention against the matrix peak, in FLOP of the causal half: forward, and forward with backward, over
/// lengths and head sizes. Its fact is the most memory beside operands and results: what the ledger counts and the
/// kernels' scratch. Then queries at the end of a cache, as when tokens are generated, against a triad, in bytes of the
/// cache; and to a cache in 8 bits, beside one in the dtype.
std::vector<Figure> bench_attention(const Context& context, const Limits& limits, DType dtype, int samples);

/// Updates, norms, activations, residuals and casts against a triad, in bytes that are read and written once.
std::vector<Figure> bench_elementwise(const Context& context, const Limits& limits, DType dtype, int samples);

/// all_reduce, reduce_scatter and all_gather of tensors of so many MiB, in bytes of the whole tensor. In f32 they stand
/// beside MPI's own collective, if the ranks are processes, and beside the reads and writes of memory that any
/// algorithm needs, done by all ranks at once. Other dtypes stand beside the same number of elements in f32. All ranks
/// call it, and each gets the figures.
std::vector<Figure> bench_collectives(Communicator& ranks, const Context& context, DType dtype, int samples,
                                      const std::vector<int64_t>& mebibytes = {1, 4, 16, 64, 256});

/// Writing and reading `bytes` bytes of tensors in one file, as checkpoints do, against plain sequential writes and
/// reads; and opening a file of very many tensors.
std::vector<Figure> bench_io(const Context& context, const std::string& folder, int64_t bytes, int samples);

/// The shape of TinyLlama 1.1B.
ModelConfig decode_shape();
/// Next tokens of 1, 8 and 32 sequences that hold `context_length` tokens each, by a model of random weights, against a
/// triad in bytes of the weights and the cache that a step reads. ConfigError unless the length is within the
/// positions of the model. self: of one rank.
std::vector<Figure> bench_decode(Communicator& self, const Context& context, const Limits& limits, DType dtype,
                                 int samples, const ModelConfig& config, int64_t context_length);

/// A Llama of 33M parameters.
ModelConfig rollout_shape();
struct RolloutShape {
  int64_t generations = 8, prompt = 512, answer = 64;  // answers to a prompt, and the tokens of each
};
/// Answers to one prompt, by a model of random weights, against as many answers to prompts of their own. ConfigError
/// unless they are within the positions of the model. self: of one rank.
Figure bench_rollout(Communicator& self, const Context& context, DType dtype, int samples, const ModelConfig& config,
                     const RolloutShape& shape);

/// W1 to W6 (docs/performance.md), with AdamW: in bf16 with fp32 master weights, or in f32. ConfigError for another
/// name.
TrialStep named_step(const std::string& name, DType dtype = DType::bf16);
struct StepFigures {
  /// Tokens of all ranks per second. Its limit is the matrix peak of all ranks together, in model FLOPs with causal
  /// attention. Its facts are the seconds from the start of this process to its first step, and how often its Memory
  /// asked the system for memory after the second step.
  Figure step;
  /// This rank's operations, the longest first, then the rest of the step. The limit of products and attention is the
  /// matrix peak, that of other operations a triad. All ranks measure the limits at once.
  std::vector<Figure> operations;
};
/// Measures a step. All ranks call it. Each gets the figures, with its own operations.
StepFigures bench_step(Communicator& ranks, const Context& context, const Limits& limits, const TrialStep& trial,
                       int samples);
}  // namespace nought
