// GradientStore: sums of gradients that live on the host beside a device, or in a file of this rank, between the
// backward pass of their Unit and the update (ZeRO-Infinity, arXiv 2104.07857).
//
// Design goals: what is added, and in which order, is what memory of the device would add. The sums leave behind the
// backward pass, which OffloadPool bounds. Squares are summed as the last micro-batch is added, so that no norm reads a
// file.
#pragma once

#include <string>
#include <vector>

#include "nought/offload/offload_pool.h"
#include "nought/zero/partition.h"

namespace nought {

class GradientStore : public OffloadPool {
 public:
  /// owner: the name of this rank in messages about its file.
  GradientStore(const Context& context, DType dtype, const OffloadTier& tier, const std::string& owner);

  /// Makes room for so many elements. The squares of each interval of `counted` are summed by themselves.
  Slot add(int64_t numel, std::vector<Interval> counted);
  /// All rooms are added.
  void open();
  bool in_file() const { return tier().pool == Pool::file; }

  /// Adds what the compute stream has left in `from`, a tensor of the device, to the sum, or makes that the sum. last:
  /// it is then that of the step. The Event is done when it is there. Waits first if others are on their way.
  Event take(Slot slot, const Tensor& from, bool add, bool last);

  /// The sum on its way back to the device, for what adds to it there.
  struct Arrival {
    Tensor into;
    Event event = {};
  };
  Arrival bring(Slot slot) { return bring(slot, {0, rooms_[slot].numel}); }
  Arrival bring(Slot slot, Interval elements);
  /// The compute stream goes on when it is there.
  Tensor await(const Arrival& arrival);
  /// The sums of squares of the intervals that count of the step's sum, f64, where the host computes.
  Tensor square(Slot slot);
  /// A step ends.
  void reset();

 private:
  struct Room {
    int64_t numel = 0;
    std::vector<Interval> counted = {};
    int64_t first = 0;     // the place of its sums in squares_
    bool squared = false;  // the sum of squares is known
  };
  Tensor squares_of(const Room& room) const { return squares_.flat(room.first, room.first + std::ssize(room.counted)); }

  Context context_;
  DType dtype_;
  std::vector<Room> rooms_;  // by slot
  Tensor squares_;           // f64, of each slot those of its intervals
};

}  // namespace nought
