// SpikeWatch: whether the loss or the gradient norm of a step is far above those of the steps before it.
#pragma once

#include <cstdint>

namespace nought {

class SpikeWatch {
 public:
  /// factor: how many times its average makes a number a spike.
  explicit SpikeWatch(double factor) : factor_(factor) {}

  /// True for a number that is not finite or, when ten steps were added, above the factor times its average.
  bool is_spike(double loss, double grad_norm) const;
  /// A step was made; a number that is not finite is left out.
  void add(double loss, double grad_norm);

  /// The means in which the last twenty steps count most; 0 before the first.
  double loss() const { return loss_.value; }
  double grad_norm() const { return grad_norm_.value; }

 private:
  struct Mean {
    double value = 0;
    int64_t count = 0;
    void add(double number);
  };
  bool exceeds(double number, const Mean& mean) const;

  double factor_;
  Mean loss_, grad_norm_;
};

}  // namespace nought
