// HostGradients: sums of gradients that live on the host beside a device: what the device has added up is brought there
// while the backward pass goes on, and added to what is there.
//
// Design goals: the device holds no sums but those on their way, of which there are kUnderWay at most. What is added,
// and in which order, is what the device would add, by the same operations.
#pragma once

#include <deque>

#include "nought/kernels/kernels.h"

namespace nought {

class HostGradients {
 public:
  explicit HostGradients(const Context& context);

  /// Zeros on the host.
  Tensor make(int64_t numel, DType dtype) const;
  /// Brings what the compute stream has left in `from`, a tensor of the device, and adds it to `into`, which is on the
  /// host, or converts it to that. The Event is done when it is there. Waits first if others are on their way.
  Event take(const Tensor& from, const Tensor& into, bool add);
  /// Waits for all of them.
  void settle();
  /// That came down.
  int64_t bytes() const { return bytes_; }

 private:
  static constexpr size_t kUnderWay = 2;
  /// Its tensors stay until somebody waited: what is alive depends on the program alone.
  struct UnderWay {
    Event added;
    Tensor from, landed;
  };
  void await_oldest();

  Context context_, host_;
  std::shared_ptr<Stream> down_;
  std::deque<UnderWay> under_way_;
  int64_t bytes_ = 0;
  Stream adder_;  // the last member: its thread uses the others
};

}  // namespace nought
