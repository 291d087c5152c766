// RestartPolicy: whether and when a job that failed starts again.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace nought {

struct JobFailure {
  int64_t step = 0;        // that was made, 1 for the first
  int64_t checkpoint = 0;  // the step of the last complete checkpoint; 0: there is none
  std::string cause;       // one line
};

class RestartPolicy {
 public:
  static constexpr int kSameStep = 3;             // so many failures of one step in a row are its own fault
  static constexpr double kLongestPause = 600.0;  // seconds

  /// restarts: how many failures are borne without a new checkpoint. pause: seconds before the first restart; each
  /// further one waits twice as long as the one before. checkpoint: the last one when the first job begins.
  RestartPolicy(int64_t restarts, double pause, int64_t checkpoint)
      : restarts_(restarts), left_(restarts), first_pause_(pause), checkpoint_(checkpoint) {}

  /// The seconds to wait before the next start. Nothing: there is none, and give_up() says why.
  std::optional<double> after(const JobFailure& failure);
  const std::string& give_up() const { return give_up_; }
  /// How many restarts are left until the next checkpoint.
  int64_t left() const { return left_; }
  /// How many of them this is, 1 for the first.
  int64_t restart() const { return restarts_ - left_; }

 private:
  int64_t restarts_, left_;
  double first_pause_;
  int64_t checkpoint_;  // the one that was the last when a job failed last
  int64_t step_ = -1;
  int same_ = 0;
  std::string give_up_;
};

}  // namespace nought
