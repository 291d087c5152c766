// StateSource: where the values of parameters, and of their optimizer states, come from when a run starts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "nought/kernels/four_bits.h"
#include "nought/optim/optimizer.h"

namespace nought {

/// A tensor in codes of 4 bits as a file has it (kernels/four_bits.h): the bytes live as long as the source.
struct StoredFourBits {
  CodeKind kind;
  std::span<const std::byte> codes;   // two in a byte
  std::span<const std::byte> scales;  // f32, or u8 codes
  std::span<const std::byte> nested;  // f32: the scales of the codes; empty: they are none
  float offset = 0;

  /// The scales where they are codes.
  NestedScales nested_scales() const;
};

/// A tensor in blocks along its rows, as a row of the table of formats has them (io/weight_formats.h).
struct StoredBlocks {
  const WeightFormat* format = nullptr;
  /// Writes the bytes of `elements` of the flattened global tensor, whole blocks, one behind the other. It is called
  /// while the source lives.
  std::function<void(Interval elements, std::byte* to)> read;
};

/// Gives any elements of any parameter: initial values, a Hugging Face folder, a checkpoint. Layouts ask for what they
/// own of the global tensors, so the values never depend on the layout.
class StateSource {
 public:
  virtual ~StateSource() = default;
  /// Writes `elements` of the flattened global tensor, rising intervals, one behind the other to `destination` ([their
  /// number], any float dtype), where host code may write.
  virtual void fill(StateKind kind, const Parameter& parameter, std::span<const Interval> elements,
                    const Tensor& destination) const = 0;
  void fill(StateKind kind, const Parameter& parameter, Interval elements, const Tensor& destination) const {
    fill(kind, parameter, std::span(&elements, 1), destination);
  }
  /// The global tensor if the source has it in codes of 4 bits, in whole blocks.
  virtual std::optional<StoredFourBits> four_bits(const Parameter& /*parameter*/) const { return std::nullopt; }
  /// The global tensor if the source has it in blocks along its rows, or in codes that make such blocks.
  virtual std::optional<StoredBlocks> blocks(const Parameter& /*parameter*/) const { return std::nullopt; }
};

/// source.fill() for a destination on any device.
void fill(const Context& context, const StateSource& source, StateKind kind, const Parameter& parameter,
          std::span<const Interval> elements, const Tensor& destination);

/// Calls f(interval, its part of the destination) for each of the intervals whose elements lie there one behind the
/// other.
template <class F>
void for_each_interval(std::span<const Interval> elements, const Tensor& destination, F&& f) {
  int64_t begin = 0;
  for (const Interval& interval : elements) {
    f(interval, destination.flat(begin, begin + interval.size()));
    begin += interval.size();
  }
}

/// Initial values: a function of (seed, parameter name, index); all states but the master are zero.
class InitialState final : public StateSource {
 public:
  explicit InitialState(uint64_t seed) : seed_(seed) {}
  using StateSource::fill;
  void fill(StateKind kind, const Parameter& parameter, std::span<const Interval> elements,
            const Tensor& destination) const override;

 private:
  uint64_t seed_;
};

}  // namespace nought
