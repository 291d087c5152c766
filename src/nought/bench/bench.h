// What `nought bench` measures: each function gives figures with the limit that was measured beside them.
//
// Design goals: figures are ratios to limits of the same minute on the same threads; the code that is measured is the
// code that trains. Non-goals: absolute claims.
#pragma once

#include <functional>

#include "nought/autograd/tape.h"
#include "nought/bench/report.h"
#include "nought/comm/communicator.h"
#include "nought/models/config.h"
#include "nought/zero/sharded_model.h"

namespace nought {

/// Rates that a rank cannot exceed, measured anew at each call on its OpenMP threads.
struct Limits {
  std::function<double(DType)> matrix;  // FLOP/s of register-only products
  std::function<double()> memory;       // B/s of a triad
};
Limits measured_limits();

/// Products of a decoder's layer, forward and both backward ones, its head, and small ones: FLOP against the peak.
std::vector<Figure> bench_products(const Context& context, const Limits& limits, DType dtype, int samples);

struct HeadShape {
  int64_t tokens = 4096, vocabulary = 50304, hidden = 768;
};
/// The head with its loss, forward and backward, against its three products alone over all tokens at once. Fact: the
/// most that its workspace takes, which is the logits and the losses.
Figure bench_head(const Context& context, DType dtype, int samples, const HeadShape& shape = {});

/// Causal attention, forward and forward with backward, over lengths and head sizes: causal FLOP against the peak.
/// Fact: the most that it holds beside its operands and results: the ledger's share and the kernels' scratch.
std::vector<Figure> bench_attention(const Context& context, const Limits& limits, DType dtype, int samples);

/// Updates, norms, activations, residuals and casts: bytes read and written once, against a triad.
std::vector<Figure> bench_elementwise(const Context& context, const Limits& limits, DType dtype, int samples);

/// all_reduce, reduce_scatter and all_gather of tensors of so many MiB: the bytes of the whole tensor. f32 stands
/// beside MPI's own collective (when the ranks are processes) and beside the reads and writes of memory that no way of
/// doing it can do without, by all ranks at once; other dtypes beside as many elements in f32. All ranks call it; each
/// gets the figures.
std::vector<Figure> bench_collectives(Communicator& ranks, const Context& context, DType dtype, int samples,
                                      const std::vector<int64_t>& mebibytes = {1, 4, 16, 64, 256});

/// Writing and reading a file of tensors, as checkpoints do, against plain sequential writes and reads.
std::vector<Figure> bench_io(const Context& context, const std::string& folder, int64_t bytes, int samples);

/// A training step on random tokens.
struct StepBench {
  std::string name;  // "W1"
  ModelConfig config = {};
  int64_t micro_batch = 1, seq_length = 1;
  ShardedModel::Options sharding = {};
  RecomputeOptions recompute = {};
};
/// W1, W2 or W3 (docs/performance.md), in bf16 with AdamW. ConfigError for another name.
StepBench named_step(const std::string& name);
/// What a step was measured to do.
struct StepFigures {
  /// Tokens of all ranks per second, against the matrix peak of all ranks together by model FLOPs (causal). Facts: the
  /// seconds from this process's start to its first step, and how often its memory asked the system for more after the
  /// second step.
  Figure step;
  /// This rank's operations, the longest first, each against what bounds it: products and attentions the matrix peak,
  /// others the triad, both measured by all ranks at once; and the rest of the step.
  std::vector<Figure> operations;
};
/// All ranks call it; each gets the report, with operations of its own.
StepFigures bench_step(Communicator& ranks, const Context& context, const Limits& limits, const StepBench& bench,
                       int samples);

}  // namespace nought
