// DeviceCopies: copies between a device and the host that run overlapped with the compute stream, on a stream for each
// way.
#pragma once

#include <initializer_list>
#include <memory>
#include <string>

#include "nought/kernels/kernels.h"

namespace nought {

class DeviceCopies {
 public:
  /// what: names the streams, which are made when they are first needed.
  DeviceCopies(const Context& context, std::string what) : context_(context), what_(std::move(what)) {}

  /// Begins a copy to the host, or to the device, after these events. The target stays as it is until the Event of the
  /// copy; work in flight keeps both tensors.
  Event down(const Tensor& from, const Tensor& to, std::initializer_list<Event> after = {}) {
    return begin(from, to, after, stream(down_, "down"), bytes_down_);
  }
  Event up(const Tensor& from, const Tensor& to, std::initializer_list<Event> after = {}) {
    return begin(from, to, after, stream(up_, "up"), bytes_up_);
  }
  /// What is copied from now on comes after the event.
  void follow(const Event& before) { stream(down_, "down").wait(before), stream(up_, "up").wait(before); }
  /// The compute stream goes on when all that was sent up is there.
  void join() { context_.stream->wait(stream(up_, "up").record()); }

  int64_t bytes_down() const { return bytes_down_; }
  int64_t bytes_up() const { return bytes_up_; }

 private:
  Stream& stream(std::shared_ptr<Stream>& of, const char* way) {
    if (!of) of = context_.memory->device().make_stream(what_ + " " + way);
    return *of;
  }
  static Event begin(const Tensor& from, const Tensor& to, std::initializer_list<Event> after, Stream& on,
                     int64_t& bytes) {
    for (const Event& event : after) on.wait(event);
    copy(from, to, on);
    bytes += from.bytes();
    return on.record();
  }

  Context context_;
  std::string what_;
  std::shared_ptr<Stream> down_, up_;
  int64_t bytes_down_ = 0, bytes_up_ = 0;
};

}  // namespace nought
