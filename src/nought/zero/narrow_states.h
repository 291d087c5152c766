// NarrowStates: masters and states that are kept narrower than f32, in 16 bits or as 8-bit codes. They are widened,
// updated or loaded, and narrowed in stretches that stay in the cache.
#pragma once

#include <functional>
#include <vector>

#include "nought/comm/mesh.h"
#include "nought/optim/optimizer.h"
#include "nought/zero/segment_states.h"

namespace nought {

class NarrowStates {
 public:
  /// by_host: updates of a device are made by the host.
  NarrowStates(const Context& context, const Mesh& mesh, const OptimizerOptions& options, bool by_host)
      : memory_(context.memory), mesh_(mesh), options_(options), by_host_(by_host) {}

  /// Number of the update which is computed, from 1 on: stochastic rounding depends on it.
  void set_number(int64_t number) { number_ = number; }
  int64_t number() const { return number_; }
  /// Whether states are, but for masters.
  bool narrows_states() const { return options_.state_block > 0 || options_.state_dtype != DType::f32; }
  /// Elements of a stretch.
  int64_t stretch() const;

  /// Calls f(span, interval of the piece) with an f32 parameter and f32 states; where they are kept narrower, stretch
  /// by stretch. by: what the update computes with.
  void in_f32(const Context& by, const TileView& tile, const TrainedPiece& piece, const UpdateSpan& span,
              const std::function<void(const UpdateSpan&, Interval)>& f) const;
  /// Elements `stretch` of a state become x, f32, or x becomes them.
  void encode(const Context& by, const TrainedPiece& piece, const StateValues& state, Interval stretch,
              const Tensor& x) const;
  void decode(const Context& by, const StateValues& state, Interval stretch, const Tensor& x) const;
  /// Room beside such values.
  Tensor workspace(const Tensor& beside, const Shape& shape, DType dtype) const;

  /// Takes the room of in_f32() now, for so many tensors of stretches of tiles that have at most so many elements.
  void hold(size_t rooms, int64_t most);
  void release() { held_.clear(); }

 private:
  /// Room for so many f32 elements of a stretch: that which is held, or new.
  std::vector<Tensor> rooms(const Tensor& beside, size_t count, int64_t numel) const;
  /// Narrows x to `into`, elements `stretch` of the piece: at random, by (seed, parameter, kind, update, element).
  void narrow(const Context& by, const TrainedPiece& piece, StateKind kind, Interval stretch, const Tensor& x,
              const Tensor& into) const;

  std::shared_ptr<Memory> memory_;
  Mesh mesh_;
  OptimizerOptions options_;
  bool by_host_;
  int64_t number_ = 0;
  std::vector<Tensor> held_;
};

}  // namespace nought
