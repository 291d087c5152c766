// Grid: where each rank stands on the axes of parallelism, and which ranks form a group.
//
// Design goals: this is the only place with arithmetic on ranks; a group is asked for by what it is for; an axis of
// size 1 changes nothing. Non-goals: talking to the ranks of a group (comm/mesh does).
//
// The ranks of a job are numbered by a grid: tensor fastest, then context, shard, replicate, and pipeline slowest (the
// order of Megatron-LM). Experts are spread by a second grid over the same ranks: expert_tensor, expert, expert_shard,
// then the same replicate and pipeline (arXiv 2504.14960).
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace nought {

enum class Axis : uint8_t {
  tensor,         // ranks that each hold a part of every matrix of a layer
  context,        // ranks that each hold a part of every sequence
  shard,          // ranks that read different samples, and share out the states of parameters (ZeRO)
  replicate,      // copies of all that: they read different samples
  pipeline,       // stages: ranks that each hold some of the layers
  expert_tensor,  // ranks that each hold a part of every matrix of an expert
  expert,         // ranks that each hold some of the experts
  expert_shard    // ranks that share out the states of the same experts; its size follows from the others
};
inline constexpr int kNumAxes = 8;
std::string_view name_of(Axis axis);

/// A set of axes.
class Axes {
 public:
  constexpr Axes() = default;
  constexpr Axes(std::initializer_list<Axis> axes) {
    for (const Axis axis : axes) bits_ |= bit(axis);
  }
  constexpr bool has(Axis axis) const { return (bits_ & bit(axis)) != 0; }
  constexpr void add(Axis axis) { bits_ |= bit(axis); }
  constexpr bool meets(Axes other) const { return (bits_ & other.bits_) != 0; }
  friend constexpr bool operator==(Axes, Axes) = default;

 private:
  static constexpr uint32_t bit(Axis axis) { return uint32_t{1} << static_cast<uint32_t>(axis); }
  uint32_t bits_ = 0;
};

/// False if both an expert axis and one of tensor, context and shard are among them: these number the same ranks in two
/// ways.
bool on_one_grid(Axes axes);

/// What a group of ranks is for. Each quantity has a name of its own, also where two groups are the same today.
enum class Group : uint8_t {
  parameters,         // share out the states of a parameter that is no expert's: gathers, reduce-scatters
  replicas,           // hold the same shard of it: their gradients are added, too
  samples,            // read different samples
  holders,            // hold the same parameters, whole or in shards
  losses,             // sums of losses and of targets; a rank without the loss (another pipeline stage's) adds 0
  metrics,            // sums of statistics, as of routers; a rank without the layer adds 0
  balance,            // the sums over tokens in a loss that balances experts; all stages know those of all layers
  norm,               // the gradient norm, each element once
  fp8_maxima,         // the largest values of one layer's tensors
  decisions,          // whether to skip an update, and all else that every rank must agree on
  tensor,             // hold the parts of the same matrices, and see the same tokens
  context,            // hold the parts of the same sequences
  pipeline,           // hold the stages of one model
  experts,            // exchange tokens with each other's experts
  expert_tensor,      // hold the parts of the same experts' matrices
  expert_parameters,  // share out the states of the same experts
};
inline constexpr int kNumGroups = 16;
std::string_view name_of(Group group);
/// The axes along which the ranks of the group differ.
Axes axes_of(Group group);

/// The size of each axis. The product of the first five is the number of ranks.
struct GridSizes {
  int replicate = 1, shard = 1, context = 1, tensor = 1, pipeline = 1;
  int expert = 1, expert_tensor = 1;
  /// Neighbours that share a host, for the groups of Mesh::over_hosts(); 0: there are none.
  int host_ranks = 0;
  /// Neighbours that keep a second copy of parameters between them, for Mesh::secondary(); 1: there is none.
  int secondary = 1;
};

class Grid {
 public:
  /// ConfigError unless all sizes are positive and experts fit: expert * expert_tensor divides shard * context *
  /// tensor.
  explicit Grid(const GridSizes& sizes);

  int ranks() const { return ranks_; }
  int size(Axis axis) const { return sizes_[static_cast<size_t>(axis)]; }
  /// The number of ranks in a group along these axes.
  int size(Axes axes) const;

  /// Where a rank stands, by axis. Of both grids.
  using Coordinates = std::array<int, kNumAxes>;
  Coordinates coordinates(int rank) const;
  int coordinate(int rank, Axis axis) const { return coordinates(rank)[static_cast<size_t>(axis)]; }

  /// The ranks that differ from `rank` along these axes only, itself included, rising. Error unless the axes are on
  /// one grid.
  std::vector<int> group(int rank, Axes axes) const;
  std::vector<int> group(int rank, Group name) const { return group(rank, axes_of(name)); }
  /// All groups along these axes, by their first rank: every rank is in one of them.
  std::vector<std::vector<int>> groups(Axes axes) const;
  /// The groups cut in two ways: into the ranks of each that share a host, and into those that are the i-th on theirs.
  /// Nothing where none spans several hosts, or hosts do not have equally many ranks of it, two at least.
  struct Levels {
    std::vector<std::vector<int>> inside, across;
  };
  std::optional<Levels> levels(Axes axes) const;
  /// The groups cut into so many neighbours each. ConfigError if that does not divide them.
  std::vector<std::vector<int>> neighbours(Axes axes, int count) const;
  /// True if the ranks of each group share a host; false if it is not known which do.
  bool inside_hosts(const std::vector<std::vector<int>>& groups) const;

 private:
  /// The rank of this group that stands at 0 on all of the axes: the group's lowest.
  int first_of_group(int rank, Axes axes) const;

  std::array<int, kNumAxes> sizes_{};
  int ranks_ = 1, host_ranks_ = 0;
};

/// A line for each axis of several ranks: its name, its size, and which ranks differ along it. The axes of experts are
/// among them if ranks hold different experts.
std::vector<std::string> describe(const Grid& grid);

}  // namespace nought
