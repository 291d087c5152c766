// OneBitExchange: the mean over ranks of one flat buffer of each, sent in one bit, with what the signs leave out kept
// and added the next time (error compensation: arXiv 2102.02888, section 4.2).
//
// Each rank is the server of one shard. Worker: u = values + error; its signs go to the servers, with a scale for each
// piece; error = u - what was sent. Server: the mean of what came, plus its own error, goes to all ranks as signs
// again. Both phases send an eighth of a byte for each element and a scale of 4 bytes for each piece, whatever the
// dtype of the parameters. All ranks end with the same bits, and over time what is sent adds up to what was put in:
//   sum of results = sum of means of values - mean of the workers' errors - the servers' errors.
#pragma once

#include <vector>

#include "nought/comm/communicator.h"
#include "nought/zero/partition.h"

namespace nought {

class OneBitExchange {
 public:
  /// pieces: intervals of the segment's buffer, rising, each of which lies in one rank's shard: what shares a scale.
  OneBitExchange(const Context& context, Communicator& ranks, const Partition& partition,
                 const std::vector<Interval>& pieces);

  /// values, [partition.padded()] f32, become the compressed mean over the ranks; what is in no piece stays.
  /// Collective.
  void mean(const Tensor& values);
  /// Starts anew: nothing was left out so far.
  void forget_errors();

  /// What the signs of this rank, as worker and as server, have left out: f32 [padded] and [shard].
  const Tensor& worker_error() const { return worker_error_; }
  const Tensor& server_error() const { return server_error_; }

 private:
  struct Piece {
    Interval elements;            // of the buffer
    int rank = 0;                 // its server
    int64_t scale = 0, bits = 0;  // where they begin in the server's message
  };
  /// The piece's scale and signs in messages, of which its own begins at `message`.
  Tensor scale_in(const Piece& piece, const Tensor& messages, int64_t message) const;
  Tensor bits_in(const Piece& piece, const Tensor& messages, int64_t message) const;
  void encode(const Piece& piece, const Tensor& x, const Tensor& error, const Tensor& messages, int64_t message) const;
  void decode(const Piece& piece, const Tensor& messages, int64_t message, const Tensor& y, double factor,
              bool accumulate) const;
  /// As the server of its shard: `received` holds a message of every rank.
  void answer(const Tensor& received, const Tensor& answer);

  Context context_;
  Communicator& ranks_;
  Partition partition_;
  std::vector<Piece> pieces_;
  int64_t message_ = 0;
  Tensor worker_error_, server_error_;
};

}  // namespace nought
