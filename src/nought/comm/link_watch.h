// LinkWatch: a thread that sees to it that calls on the lanes of a rank end, as the library of a device's links does
// not.
//
// Design goals: a call that does not end by its deadline, that the library has given up, or that another rank cannot
// join any more fails the device of this rank: what waits for it throws the reason, and what is on its way is cut off.
// The thread sleeps while nothing is on its way.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "nought/comm/transport.h"
#include "nought/tensor/device_group.h"

namespace nought {

class LinkWatch {
 public:
  /// `device` outlives it.
  explicit LinkWatch(LinkedDevice& device);
  ~LinkWatch();
  LinkWatch(const LinkWatch&) = delete;
  LinkWatch& operator=(const LinkWatch&) = delete;

  /// A group of this rank. `peer_failure`: see Transport.
  using PeerFailure = std::function<std::exception_ptr(const Call&)>;
  void join(DeviceGroup& group, PeerFailure peer_failure);
  /// Its calls are done, or nobody waits for them.
  void leave(DeviceGroup& group);
  /// The call is done when the event is; calls of one group one behind the other.
  void add(DeviceGroup& group, const Call& call, const Event& done);
  /// Fails the device, and cuts off whatever is on its way.
  void cut(const std::exception_ptr& why);

 private:
  struct Flight {
    Call call;
    Event done;
  };
  struct Member {
    PeerFailure peer_failure;
    std::deque<Flight> flights;
  };
  void watch();
  /// Lets go of what is done. Returns why something cannot end; null if nothing is known.
  std::exception_ptr look(DeviceGroup& group, Member& member) const;
  bool is_idle() const;  // under the mutex

  LinkedDevice& device_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<DeviceGroup*, Member> members_;
  bool is_cut_ = false, stopping_ = false;
  std::thread thread_;
};

}  // namespace nought
