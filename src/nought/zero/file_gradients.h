// FileGradients: sums of gradients that live in a file of this rank between the backward pass of their Unit and the
// update (ZeRO-Infinity, arXiv 2104.07857).
//
// Design goals: what is added, and in which order, is what memory would add, by the same operations. The sums go to the
// file behind the backward pass; memory has those of a few Units that are under way, and which ones depends on the
// program alone, never on the drive. Squares are summed before the last write, so that no norm reads the file.
#pragma once

#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "nought/aio/swap_file.h"
#include "nought/kernels/kernels.h"
#include "nought/zero/offload_options.h"
#include "nought/zero/partition.h"
#include "nought/offload/state_traffic.h"

namespace nought {

class FileGradients {
 public:
  /// owner: the name of this rank in messages about its file.
  FileGradients(const Context& context, DType dtype, const OffloadOptions& options, const std::string& owner);

  /// Makes room for so many elements, of which `counted` count in the norm; returns its number. Nothing is there before
  /// the first take().
  size_t add(int64_t numel, Interval counted);
  /// All rooms are added.
  void open();

  /// What else of this rank may have files in the folder.
  const std::shared_ptr<SwapSpace>& space() const { return space_; }
  /// Room on the device that take() can send from, and bring() fill, without another copy.
  Tensor device_room(int64_t numel, DType dtype) const;

  /// Adds what the compute stream has left in `from`, a tensor of the device, to the sum, or makes that the sum. last:
  /// it is then that of the step. The Event is done when it is in the file. Waits first if others are on their way.
  Event take(size_t number, const Tensor& from, bool add, bool last);
  /// Waits until so many are under way, or fewer.
  void settle(size_t under_way = 0);

  /// The sum on its way back to the device, for what adds to it there.
  struct Arrival {
    Tensor into;
    Event event = {};
    Tensor staging = {};  // what it passes on the host
  };
  Arrival bring(size_t number) { return bring(number, {0, rooms_[number].numel}); }
  Arrival bring(size_t number, Interval elements);
  /// The compute stream goes on when it is there.
  void await(const Arrival& arrival);
  /// Starts reading elements of the sum into a tensor of the host. May be called beside take() of other numbers.
  Event read(size_t number, std::span<const Interval> elements, std::span<const Tensor> into) const;
  /// The whole sum, on the host.
  Tensor whole(size_t number) const;

  /// The sum of squares of what counts of the step's sum, f64 [1], where the host computes.
  Tensor square(size_t number);
  /// A step ends.
  void reset();

  /// What take() and bring() have moved so far.
  const StateTraffic& traffic() const { return traffic_; }
  /// Seconds in which the calling thread waited for the file.
  double waited() const { return waited_; }

 private:
  struct Room {
    int64_t numel = 0, offset = 0;  // bytes
    Interval counted = {};
    Event written = {};
    bool squared = false;  // the sum of squares is known
  };
  /// What take() has begun; its tensors stay until somebody waited.
  struct UnderWay {
    Event written;
    Tensor from, landed, sum;
  };
  static constexpr size_t kUnderWay = 2;
  bool device_is_host() const { return context_.memory->device().is_host(); }
  Tensor host_room(int64_t numel, DType dtype) const;
  Tensor square_of(size_t number) const {
    const auto at = static_cast<int64_t>(number);
    return squares_.flat(at, at + 1);
  }

  Context context_, host_;
  DType dtype_;
  std::shared_ptr<SwapSpace> space_;
  std::unique_ptr<SwapFile> file_;
  std::vector<Room> rooms_;
  Tensor squares_;  // f64, one for each room
  std::deque<UnderWay> under_way_;
  std::shared_ptr<Stream> down_, up_;  // where the host has no access to the device
  int64_t file_bytes_ = 0;
  StateTraffic traffic_;
  double waited_ = 0;
  Stream adder_;  // the last member: its thread uses the others
};

}  // namespace nought
