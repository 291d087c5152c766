// SampleOrder: the endless order in which training draws samples, a function of the seed.
//
// Epoch e comes in the order of a permutation that is made from (seed, e). With several weighted sources, an epoch has
// as many samples as all sources hold together, and draws from each source its share of them. The samples of a source
// come in the order of a permutation of its own, all of them before one comes again. So a source with a large weight is
// seen several times in an epoch, and one with a small weight is not seen whole.
#pragma once

#include <cstdint>
#include <vector>

namespace nought {

/// A permutation of [0, size) without a table: a Feistel network over the next power of four. It is applied again while
/// the result lies outside of the range (cycle walking).
class Permutation {
 public:
  Permutation(uint64_t size, uint64_t key);
  /// Where `index` goes; index < size.
  uint64_t operator()(uint64_t index) const;

 private:
  uint64_t encrypt(uint64_t value) const;

  uint64_t size_, key_;
  int half_bits_ = 4;
};

/// The samples of a source, and its share of training; the shares sum to 1.
struct SourceShare {
  int64_t num_samples = 0;
  double weight = 1;
};

/// Shares from weights that sum to anything: without any, each source counts as much as it holds.
std::vector<SourceShare> normalized(std::vector<SourceShare> sources);

/// The number of steps, of `per_step` samples each, that see all samples `epochs` times; the last may begin another
/// epoch. ConfigError unless epochs >= 0.
int64_t steps_for_epochs(double epochs, int64_t samples, int64_t per_step);

class SampleOrder {
 public:
  /// shuffle = false: samples come in their own order. ConfigError if a source that has a weight has no sample.
  SampleOrder(std::vector<SourceShare> sources, uint64_t seed, bool shuffle = true);

  /// The sample at a position of the order.
  int64_t operator()(int64_t position) const;
  /// The samples of a step that takes `per_step`, in their order.
  std::vector<int64_t> of_step(int64_t step, int64_t per_step) const;
  /// The samples of an epoch.
  int64_t size() const { return size_; }

 private:
  std::vector<SourceShare> sources_;
  uint64_t seed_;
  bool shuffle_;
  int64_t size_ = 0;
  std::vector<int64_t> draws_;  // samples that an epoch draws from each source
};

}  // namespace nought
