// UpdateTransfers: what crosses between a device and the host in an update that the host makes: gradients down,
// parameters up, tile by tile, on a stream for each way.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "nought/kernels/kernels.h"

namespace nought {

class UpdateTransfers {
 public:
  /// places: how many tiles are under way at once.
  UpdateTransfers(const Context& context, size_t places);

  /// What the host has of a tile beside its masters and states; parameters in the dtype of the device.
  enum class Room : uint8_t { gradients, parameters, directions };
  /// Begins a walk over tiles of at most so many elements: what the compute stream was given before comes first.
  void begin(int64_t most);
  /// The compute stream goes on when all that was sent up is there.
  void join();
  void end();

  /// Brings a tensor to the host, after what the compute stream was given before.
  Event bring(const Tensor& from, const Tensor& to);
  /// Takes a room of each place now; after begin().
  void hold(Room room, DType dtype) {
    for (size_t place = 0; place < places_.size(); ++place) this->room(place, room, {}, dtype);
  }

  /// What is brought and sent from now on comes after the event.
  void follow(const Event& before) { down_->wait(before), up_->wait(before); }

  /// Waits until what a place sent up is there.
  void free_place(size_t place) { places_[place].up.wait(); }
  /// Starts bringing a tensor of the device to one of the host, for the tile at a place.
  void down(const Tensor& from, const Tensor& to, size_t place);
  /// Waits for what was brought.
  void arrive(size_t place) { places_[place].down.wait(); }
  /// Starts sending a tensor of the host, which stays as it is until free_place().
  void up(const Tensor& from, const Tensor& to, size_t place);
  /// Elements of the place's room on the host.
  Tensor room(size_t place, Room room, Interval elements, DType dtype);

  int64_t bytes_down() const { return bytes_down_; }
  int64_t bytes_up() const { return bytes_up_; }

 private:
  struct Place {
    std::array<Tensor, 3> rooms;
    Event down, up;
  };
  Context context_;
  std::shared_ptr<Stream> down_, up_;
  std::vector<Place> places_;
  int64_t most_ = 0, bytes_down_ = 0, bytes_up_ = 0;
};

}  // namespace nought
