// StateTraffic: how many bytes a rank has moved between its pools. StateTimes: how long that took.
#pragma once

#include <cstdint>

namespace nought {

/// Bytes of parameters, gradients and optimizer states that moved between the pools of a rank.
struct StateTraffic {
  int64_t down = 0, up = 0;       // from the device to the host, and back
  int64_t read = 0, written = 0;  // from and to files

  friend StateTraffic operator+(const StateTraffic& a, const StateTraffic& b) {
    return {a.down + b.down, a.up + b.up, a.read + b.read, a.written + b.written};
  }
  friend StateTraffic operator-(const StateTraffic& a, const StateTraffic& b) {
    return {a.down - b.down, a.up - b.up, a.read - b.read, a.written - b.written};
  }
  friend StateTraffic operator*(int64_t factor, const StateTraffic& a) {
    return {factor * a.down, factor * a.up, factor * a.read, factor * a.written};
  }
  friend bool operator==(const StateTraffic&, const StateTraffic&) = default;
};

/// Seconds of a rank.
struct StateTimes {
  double on_way = 0;  // in which states, gradients or parameters were on their way from or to files
  double waited = 0;  // in which its thread waited for them, or for an update overlapped with its own work

  friend StateTimes operator+(const StateTimes& a, const StateTimes& b) {
    return {a.on_way + b.on_way, a.waited + b.waited};
  }
  friend StateTimes operator-(const StateTimes& a, const StateTimes& b) {
    return {a.on_way - b.on_way, a.waited - b.waited};
  }
};

}  // namespace nought
