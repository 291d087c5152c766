// TreeSums: adds up what the micro-batches of a step give in a binary tree, for one tensor: the gradients of a segment
// with training.virtual_ranks.
//
// Design goals: which numbers meet depends on the number of a micro-batch alone, so a rank that makes the work of two
// gets their bits. A tree over m micro-batches, a power of two, keeps log2(m) sums of 1, 2, 4 ... of them, as a binary
// counter does; the tree over the ranks goes on where that of a rank ends. Non-goals: adding over ranks (Communicator).
#pragma once

#include <vector>

#include "nought/zero/gradient_store.h"

namespace nought {

class TreeSums {
 public:
  /// No tree: what is added goes elsewhere.
  TreeSums() = default;
  /// sums: as many as levels_of() says. The whole sum is in the first.
  explicit TreeSums(std::vector<Tensor> sums) : sums_(std::move(sums)) {}
  TreeSums(GradientStore& store, std::vector<OffloadPool::Slot> slots) : store_(&store), slots_(std::move(slots)) {}
  static int levels_of(int64_t micro_batches);

  explicit operator bool() const { return levels() > 0; }
  /// Where the values of a micro-batch may be written before they are added, so that nothing is copied; undefined
  /// where there is no such place.
  Tensor place_of(int64_t micro_batch) const;
  /// Adds them; micro-batches rise. One that gave nothing has zeros. last: of the step. The event is done when the
  /// whole sum is there.
  Event add(const Context& context, int64_t micro_batch, const Tensor& values, bool last);
  /// After the step's `count` micro-batches, of which the last may have given nothing: the whole sum, of so many
  /// elements, is then there.
  void finish(const Context& context, int64_t count, int64_t numel, DType dtype);
  /// Begins a step.
  void reset() { added_ = 0; }

 private:
  size_t levels() const { return store_ != nullptr ? slots_.size() : sums_.size(); }
  /// Adds the values of the next micro-batch.
  Event add_next(const Context& context, const Tensor& values, bool last);
  /// Puts values at a level, or adds them to what it has.
  Event put(const Context& context, size_t level, const Tensor& values, bool add, bool last);

  std::vector<Tensor> sums_;
  GradientStore* store_ = nullptr;
  std::vector<OffloadPool::Slot> slots_;
  int64_t added_ = 0;  // micro-batches of the step
};

}  // namespace nought
