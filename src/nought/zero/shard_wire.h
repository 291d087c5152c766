// ShardWire: how shards travel between the ranks that share something out: a gather, and a reduction in hops.
//
// Design goals: Residency and Reducer say what is gathered and added up; here is how that crosses between ranks: to all
// at once or, where the mesh knows the hosts, in two hops, so that a link between hosts carries everything once; as
// values, or as codes of few bits. Values come as they were, and a gather has the same bits however it went. Codes lose
// what EncodeWire says, once for each hop.
#pragma once

#include <optional>

#include "nought/comm/mesh.h"
#include "nought/zero/wire_options.h"

namespace nought {

/// The ranks that share something out, and the same by hosts.
struct WireRanks {
  Communicator* all = nullptr;
  std::optional<Mesh::OverHosts> over_hosts = {};

  int size() const { return all->size(); }
  int hosts() const { return over_hosts ? over_hosts->across->size() : 1; }
};

/// A gather under way. It keeps what is sent until finish(), so that what is alive depends on the program alone.
class ShardGather {
 public:
  ShardGather() = default;
  /// whole, [ranks * mine.numel()], = all ranks' `mine`, by rank. Of codes of `bits`; 0: of values. `ready`: what
  /// `mine` waits for, beside the compute stream.
  ShardGather(const Context& context, const WireRanks& ranks, const Tensor& mine, const Tensor& whole, int bits,
              const Event& ready = {});
  explicit operator bool() const { return waits_ != nullptr; }
  /// Orders it before what the compute stream is given from now on, and decodes what came.
  void finish(const Context& context, const Tensor& whole);

 private:
  /// Gathers tensors as they are, not quantized.
  void gather(const Context& context, const WireRanks& ranks, const Tensor& mine, const Tensor& whole,
              const Event& ready);

  int bits_ = 0, ranks_ = 1;
  Tensor of_hosts_, sent_, records_;
  const Communicator* waits_ = nullptr;
  Event event_;
};

/// What the two hops of the reductions of one tensor have lost (ErrorFeedback).
struct WireErrors {
  Tensor first, second;  // of the whole tensor, and of what goes to the other hosts
  Tensor count;          // [1] i64 on the host: reductions so far; checkpoints keep it beside the errors

  explicit operator bool() const { return first.defined(); }
  /// Counts one more, and returns how many there were; 0 where memory is only counted.
  int64_t next() const;
};

/// A reduction to shards under way (arXiv 2306.10209, section 3.3): each rank sends every other one of its host what
/// that one adds up, as records; it adds in fp32, and sends the sums on to the ranks of its place on the other hosts,
/// which add again. Ranks whose hosts are not known, or not alike, take one hop between all.
class ShardReduction {
 public:
  /// `errors` may be null; it is kept until complete(). sum: [whole.numel() / ranks], written by complete(). `whole`
  /// may be written again by what the compute stream is given next.
  ShardReduction(const Context& context, const WireRanks& ranks, const WireOptions& options, const Tensor& whole,
                 Tensor sum, WireErrors* errors);
  /// Waits for the first of two hops, and begins the second one; nothing later.
  void cross();
  /// sum = this rank's part of the sum of all ranks' tensors. Crosses before, unless it has.
  void complete();

 private:
  EncodeWire encoding(const Tensor& x, const Tensor& records, const Tensor& error) const;
  Tensor records_of(int64_t parts) const;
  void exchange(Communicator& ranks, const Tensor& records);

  Context context_;
  WireRanks ranks_;
  WireOptions options_;
  Tensor sum_, sent_, received_;
  WireErrors* errors_;
  Communicator* waits_ = nullptr;
  Event event_;
  bool crossed_ = false;
};

/// Errors for reductions of a tensor of so many elements over these ranks.
WireErrors make_wire_errors(const Context& context, const WireRanks& ranks, int64_t numel, DType dtype);

}  // namespace nought
