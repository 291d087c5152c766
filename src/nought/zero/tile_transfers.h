// TileTransfers: what an update has on the host of the tiles under way, beside their masters and states: gradients that
// come down from the device, or from a file, and parameters that go up.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "nought/offload/offload_pool.h"
#include "nought/zero/state_tiles.h"

namespace nought {

class TileTransfers {
 public:
  /// copies: between the device and the host; null where an update is made on the device. gradients: those that are in
  /// a file, or null. places: how many tiles are under way at once.
  TileTransfers(const Context& context, DeviceCopies* copies, const OffloadPool* gradients, size_t places)
      : context_(context), copies_(copies), gradients_(gradients), places_(places) {}

  /// Parameters in the dtype of the device.
  enum class Room : uint8_t { gradients, parameters, directions };
  /// Begins a walk over tiles of at most so many elements: what the compute stream was given before comes first.
  void begin(int64_t most);
  void end();
  /// What is brought and sent from now on comes after the event.
  void follow(const Event& before) {
    if (copies_) copies_->follow(before);
  }
  /// The compute stream goes on when all that was sent up is there.
  void join() {
    if (copies_) copies_->join();
  }
  /// Takes a room of each place now; after begin().
  void hold(Room room, DType dtype) {
    for (size_t place = 0; place < places_.size(); ++place) this->room(place, room, {}, dtype);
  }
  /// Elements of the place's room on the host.
  Tensor room(size_t place, Room room, Interval elements, DType dtype);

  /// Waits until what a place sent up is there.
  void free_place(size_t place) { places_[place].up.wait(); }
  /// Starts bringing a tensor of the device to one of the host, for the tile at a place.
  void down(const Tensor& from, const Tensor& to, size_t place) { places_[place].down = copies_->down(from, to); }
  /// Starts reading the gradients of a tile's pieces; `first` is the element of the segment that is the first in the
  /// file's slot.
  void read(OffloadPool::Slot slot, std::span<const TrainedPiece> pieces, int64_t first, DType dtype, size_t place);
  /// Waits for what was brought or read. Returns the seconds that it took.
  double arrive(size_t place);
  /// Starts sending a tensor of the host, which stays as it is until free_place().
  void up(const Tensor& from, const Tensor& to, size_t place) { places_[place].up = copies_->up(from, to); }

 private:
  struct Place {
    std::array<Tensor, 3> rooms;
    Event down, read, up;
  };
  Context context_;
  DeviceCopies* copies_;
  const OffloadPool* gradients_;
  std::vector<Place> places_;
  int64_t most_ = 0;
};

}  // namespace nought
