// CompressedUpdate: the updates of the 1-bit optimizers: 1-bit Adam (arXiv 2102.02888),
// 0/1 Adam (arXiv 2202.06009) and 1-bit Lamb (arXiv 2104.06069), with the semantics of DeepSpeed's OneBitAdam,
// ZeroOneAdam and OneBitLamb.
//
// Every rank updates all parameters, and what makes the update is the same bits on all of them: compressed means
// (OneBitExchange) and states that were formed of such. Between two synchronizations of 0/1 Adam alone each rank goes
// its own way. Beside the states it keeps the errors of the compression, and what 0/1 Adam and 1-bit Lamb remember.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "nought/optim/optimizer.h"
#include "nought/zero/one_bit_exchange.h"
#include "nought/zero/rank_local_tensor.h"
#include "nought/zero/reducer.h"
#include "nought/zero/residency.h"
#include "nought/zero/segment_states.h"

namespace nought {

class CompressedUpdate {
 public:
  /// Null unless the method is a 1-bit one. ConfigError where a rank has not all states, in fp32. What is referred to
  /// stays.
  static std::unique_ptr<CompressedUpdate> make(const Context& context, const OptimizerOptions& options,
                                                const std::vector<SegmentStates>& states,
                                                const std::vector<std::unique_ptr<Unit>>& units,
                                                const Residency& residency, const Reducer& reducer);

  /// True if the update of this number, from 1 on, reads each rank's own gradients, which nobody has summed.
  bool reads_local_gradients(int64_t number) const;
  /// The sum of squares of this rank's own gradients of a segment times the number of ranks, f64 [1]: added over the
  /// ranks, the mean square norm of what each would have as a mean by itself.
  void own_squares(const SegmentStates& state, const Tensor& sum) const;
  /// What this rank has for itself after so many updates: errors of compression, and weights while each rank updates
  /// alone.
  std::vector<RankLocalTensor> rank_local_tensors(
      int64_t updates, const std::function<void(const SegmentStates&, const TileWork&)>& read) const;
  /// True if a run cannot go on without these.
  bool needs_rank_local_tensors(int64_t updates) const;
  /// Makes the update of this number; false if it is one of gradients that are summed over the ranks. Collective.
  bool update(int64_t number, double lr, double gradient_scale, const WalkTiles& walk);

 private:
  /// What is kept of a segment beside its states.
  struct Own {
    std::string name;
    OneBitExchange exchange;
    int64_t first_parameter = 0;  // of its parameters, among those of all segments
    // 0/1 Adam's, over the segment: what this rank has moved since the ranks last synchronized, and where they did.
    Tensor moved = {}, anchor = {};
  };
  /// One compressed update of a segment.
  struct Step {
    Own& own;
    double lr = 0;
    double gradient_scale = 1;  // makes this rank's gradient the mean of its own samples
  };
  CompressedUpdate(const Context& context, const OptimizerOptions& options, const std::vector<SegmentStates>& states,
                   const std::vector<std::unique_ptr<Unit>>& units, const Residency& residency, const Reducer& reducer);
  Own& local_of(const TileView& tile) { return own_[static_cast<size_t>(&tile.state - states_.data())]; }
  Tensor gradient_of(const TileView& tile, const TrainedPiece& piece) const {
    return tile.state.part(piece, reducer_.reduced(tile.state.at));
  }
  void one_bit_mean(const TileView& tile, const Step& step, const Tensor& values) const;
  void advance_momentum(const TileView& tile, const TrainedPiece& piece, const Tensor& gradient, double gradient_scale,
                        const Tensor& into) const;
  void send_momentum(const TileView& tile, const Step& step, const Tensor& values) const;
  void send_gradient(const TileView& tile, const Step& step, const Tensor& values) const;
  void apply_momentum(const TileView& tile, const Step& step, const Tensor& values) const;
  void precondition(const TileView& tile, const TrainedPiece& piece, const Tensor& x, const Tensor& y,
                    bool multiply) const;
  void move(const TileView& tile, const TrainedPiece& piece, const Tensor& direction, double step, double keep) const;
  void move_apart(const TileView& tile, const Step& step, const Tensor& values) const;
  void synchronize(const TileView& tile, const Step& step, const Tensor& values) const;
  std::vector<double> parameter_squares(const TileView& tile,
                                        const std::function<Tensor(const TrainedPiece&)>& of) const;
  LambDirection lamb_direction(const TileView& tile, const TrainedPiece& piece, const Tensor& gradient,
                               const Tensor& second, const Tensor& into) const;
  void lamb_plain(const TileView& tile, const Step& step, const Tensor& values) const;
  void lamb_by_momentum(const TileView& tile, const Step& step, const Tensor& values) const;

  Context context_;
  Method method_;
  const std::vector<SegmentStates>& states_;
  const std::vector<std::unique_ptr<Unit>>& units_;
  const Residency& residency_;
  const Reducer& reducer_;
  std::vector<Own> own_;      // by segment, as in states_
  Tensor coefficients_ = {};  // 1-bit Lamb, f64, by parameter: the mean trust ratio of the warm-up, the last factor
  Tensor rate_sum_ = {};      // 0/1 Adam, f64: the learning rates since the ranks last synchronized
};

}  // namespace nought
