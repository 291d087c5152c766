// ShardedOptimizer: any optimizer over the intervals that this rank updates, with fp32 master weights where the
// parameters are 16-bit, or without them. It knows trained segments alone.
//
// With optimizer sharding a rank updates what it owns, and the parameters are exchanged afterwards; without, every rank
// updates everything. An element's update is the same arithmetic either way: parameters are cut at the borders of all
// ranks' shards whatever the stage, sums over a parameter add the shards' sums in rank order, and a matrix that Muon
// orthogonalises is computed by one rank, for all.
//
// Masters and states may have another home than the device (OffloadOptions). Where the host can not touch the device,
// the update is then made by the host: gradients flow down and parameters up, tile by tile (arXiv 2101.06840). From a
// file one tile is read while another is updated and a third is written (arXiv 2104.07857).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "nought/comm/mesh.h"
#include "nought/optim/optimizer.h"
#include "nought/zero/reducer.h"
#include "nought/zero/residency.h"
#include "nought/zero/state.h"
#include "nought/zero/state_store.h"
#include "nought/zero/state_tiles.h"
#include "nought/zero/update_transfers.h"

namespace nought {

/// Bytes that updates have moved between the pools of a rank.
struct StateTraffic {
  int64_t down = 0, up = 0;       // from the device to the host, and back
  int64_t read = 0, written = 0;  // from and to files

  friend StateTraffic operator-(const StateTraffic& a, const StateTraffic& b) {
    return {a.down - b.down, a.up - b.up, a.read - b.read, a.written - b.written};
  }
  friend bool operator==(const StateTraffic&, const StateTraffic&) = default;
};

class ShardedOptimizer {
 public:
  ShardedOptimizer(const Context& context, const Mesh& mesh, DType dtype, OptimizerOptions options,
                   const std::vector<std::unique_ptr<Unit>>& units, Residency& residency, Reducer& reducer,
                   const OffloadOptions& offload = {});

  /// By Unit, this rank's sum of squares of the summed gradients that it owns and counts for all, f64 [units]. The same
  /// values at every stage.
  Tensor owned_sums_of_squares();
  /// One update with the reduced gradients times gradient_scale. Collective. The caller exchanges the parameters
  /// afterwards.
  void update(double lr, double gradient_scale);

  /// Fills all states, and writes the parameters from the masters (the caller exchanges them).
  void load(const StateSource& source, int64_t updates);
  /// How many updates were made.
  int64_t updates() const { return updates_; }

  /// Elements of the segment's flat buffer that this rank updates.
  Interval scope(SegmentIndex at) const;
  /// One state of one piece of what this rank owns.
  struct OwnedState {
    const Parameter* parameter = nullptr;
    StateKind kind = StateKind::master;
    Interval in_parameter;                    // elements of the flattened part that this rank holds
    size_t segment = 0, tile = 0, piece = 0;  // where it is kept
  };
  /// All states of the elements that this rank owns and counts for all: what a checkpoint writes.
  std::vector<OwnedState> owned() const;
  /// Their values ([piece] f32); 8-bit states are decoded, which loses nothing (see Quantize8).
  Tensor values(const OwnedState& state) const;
  /// Calls f(parameter, kind, tensor) with each tensor that this rank keeps of a state of the elements that it updates,
  /// as it is kept: codes and their scales are two. A master that is the parameter itself is left out.
  template <class F>
  void for_each_kept(F&& f) const {
    for (const SegmentState& state : states_)
      walk(
          state, {.writes = 0}, [](const Tile&) {},
          [&](const Tile& tile) {
            for (const TrainedPiece& piece : tile.of->pieces) {
              if (state.keeps_masters) f(*piece.parameter, StateKind::master, tile.master(piece));
              for (const PieceState& each : piece.states) {
                f(*piece.parameter, each.kind, tile.values(each));
                if (!each.in_scales.empty()) f(*piece.parameter, each.kind, tile.scales(each));
              }
            }
          });
  }

  /// A line for the user on where states are, if that is a file; else "".
  std::string note() const { return store_->note(); }
  /// What the updates, loads and checkpoints so far have moved.
  StateTraffic traffic() const;

 private:
  /// What is kept narrower than f32 is widened, updated, loaded and narrowed in stretches of about so many elements:
  /// they stay in the cache.
  static constexpr int64_t kStretch = 65536;

  struct SegmentState {
    SegmentIndex at;
    Communicator* ranks = nullptr;             // that share it out
    bool writes = true;                        // this rank writes what it owns of it to files: see writes_for_all()
    Interval counted;                          // elements of the shard whose squares it adds up: see counted_for_all()
    Interval scope;                            // elements of the segment's flat buffer that this rank updates
    Tensor parameter;                          // over the scope
    bool keeps_masters = false;                // false: the parameter is what is updated
    std::vector<const Parameter*> parameters;  // all of the segment, also those outside the scope
    std::vector<ParameterRule> rules;          // theirs
    std::vector<StateTile> tiles;
    std::vector<size_t> stored;  // their numbers in the store

    /// The piece's part of a tensor over the scope.
    Tensor part(const TrainedPiece& piece, const Tensor& scoped) const {
      return scoped.flat(piece.piece.in_segment.begin - scope.begin, piece.piece.in_segment.end - scope.begin);
    }
    bool is_directed() const;
  };
  /// One state of a piece that is there: values, or codes and their scales.
  struct StateValues {
    StateKind kind;
    Tensor values, scales;
  };
  /// A tile that is being worked on; without rows while it is on its way.
  struct Tile {
    const SegmentState& state;
    const StateTile* of;
    size_t place = 0;  // in the store and the transfers
    const std::vector<Tensor>* rows = nullptr;

    /// What is updated: the master, or the parameter.
    Tensor master(const TrainedPiece& piece) const {
      if (!state.keeps_masters) return state.part(piece, state.parameter);
      return (*rows)[0].flat(piece.in_masters.begin, piece.in_masters.end);
    }
    Tensor values(const PieceState& each) const {
      return (*rows)[each.values].flat(each.in_values.begin, each.in_values.end);
    }
    /// Undefined unless the values are codes.
    Tensor scales(const PieceState& each) const {
      return each.in_scales.empty() ? Tensor{} : (*rows)[each.scales].flat(each.in_scales.begin, each.in_scales.end);
    }
    StateValues at(const PieceState& each) const { return {each.kind, values(each), scales(each)}; }
  };
  using RowSet = StateStore::RowSet;
  struct Rows {
    RowSet reads = StateStore::kAll, writes = StateStore::kAll;
  };
  SegmentState make_state(SegmentIndex at, DType dtype);
  std::vector<TrainedPiece> pieces_of(const SegmentState& state) const;

  /// fetch(tile) before a tile is there, work(tile) when it is; for each tile of the segments in turn.
  void walk(std::span<const SegmentState* const> segments, const Rows& rows,
            const std::function<void(const Tile&)>& fetch, const std::function<void(const Tile&)>& work) const;
  void walk(const SegmentState& segment, const Rows& rows, const std::function<void(const Tile&)>& fetch,
            const std::function<void(const Tile&)>& work) const {
    const SegmentState* const one = &segment;
    walk(std::span(&one, 1), rows, fetch, work);
  }
  void fetch_gradients(const Tile& tile) const;
  /// The piece's part of a tensor over the scope, where the update is made: brought by fetch, or to be sent by send().
  Tensor local(const Tile& tile, const TrainedPiece& piece, UpdateTransfers::Room room, const Tensor& scoped) const;
  /// Where the update writes parameters beside masters; undefined if it does not.
  Tensor parameter_copy(const Tile& tile, const TrainedPiece& piece) const;
  void send_parameter(const Tile& tile, const TrainedPiece& piece) const;
  /// Room where the update is made.
  Tensor workspace(const Shape& shape, DType dtype) const;

  UpdateSpan span_of(const Tile& tile, const TrainedPiece& piece, double lr, double gradient_scale) const;
  /// Calls f(span, interval of the piece) with an f32 parameter and f32 states; where they are kept narrower, stretch
  /// by stretch.
  void in_f32(const Tile& tile, const TrainedPiece& piece, const UpdateSpan& span,
              const std::function<void(const UpdateSpan&, Interval)>& f) const;
  void load(const StateSource& source, const Tile& tile, const TrainedPiece& piece) const;
  void load(const StateSource& source, const TrainedPiece& piece, const StateValues& state) const;
  void encode(const TrainedPiece& piece, const StateValues& state, Interval stretch, const Tensor& x) const;
  void decode(const StateValues& state, Interval stretch, const Tensor& x) const;
  /// Narrows x to `into`, elements `stretch` of the piece: at random, by (seed, parameter, kind, update, element).
  void narrow(const TrainedPiece& piece, StateKind kind, Interval stretch, const Tensor& x, const Tensor& into) const;

  /// Updates the piece; if its rule gives a direction first, writes that.
  void update_piece(const Tile& tile, const TrainedPiece& piece, double lr, double gradient_scale,
                    const Tensor& directions) const;
  void update_directed(const SegmentState& state, double lr, double gradient_scale);
  void add_squares(const Tile& tile, const TrainedPiece& piece, const Tensor& directions, const Tensor& sums) const;
  /// The sums over all ranks that hold parts of the parameters.
  Tensor sum_squares(const SegmentState& state, const Tensor& sums) const;
  void apply_lamb(const SegmentState& state, const Tensor& directions, const Tensor& sums, double lr) const;
  void apply_muon(const SegmentState& state, const Tensor& directions, const Tensor& whole, double lr) const;
  /// Runs make(piece) on each piece that has a direction; the operation's tensors but squares are set here.
  void apply(const SegmentState& state, const Tensor& directions,
             const std::function<ApplyDirection(const TrainedPiece&)>& make) const;

  Context context_;
  Context local_;  // that of updates: the device's or, where they are made by the host, its own
  Mesh mesh_;
  OptimizerOptions options_;
  OffloadOptions offload_;
  const std::vector<std::unique_ptr<Unit>>& units_;
  Reducer& reducer_;
  Residency& residency_;
  std::unique_ptr<StateStore> store_;
  std::unique_ptr<UpdateTransfers> transfers_;  // null unless updates of a device are made by the host
  std::vector<SegmentState> states_;            // one for each trained segment
  int64_t updates_ = 0;
};

}  // namespace nought
