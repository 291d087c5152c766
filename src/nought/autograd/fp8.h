// Training with 8-bit factors (arXiv 2209.05433): which scale brings a tensor onto the grid of E4M3 or E5M2.
//
// What the linear layers multiply is rounded to what 8 bits hold, E4M3 for inputs and weights and E5M2 for gradients,
// and multiplied in the dtype of computation: the values that FP8 units would see, on any machine. Scales are powers of
// two, so that every product of two rounded values is exact in fp32 whatever the scales.
//
// Or inputs alone are rounded, each token's by itself (compress/input_rounding.h): training for a model that will do
// so. Gradients pass straight through.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "nought/autograd/fp8_options.h"
#include "nought/autograd/unit.h"
#include "nought/base/name_pattern.h"
#include "nought/comm/communicator.h"
#include "nought/kernels/kernels.h"

namespace nought {

/// How one tensor is rounded. A default-made one leaves it as it is.
struct Fp8Rounding {
  Fp8 format = Fp8::e4m3;
  double scale = 0;     // 0: `largest`, on the device, makes the scale
  Tensor largest = {};  // [1] f32
  int margin = 0;
  Tensor ranges = {};  // what each row reaches: rows are rounded by themselves (RoundRows)
  RowGrid grid = RowGrid::affine;
  int bits = 8;
  Tensor operator()(const Context& context, const Tensor& x) const;
};

/// The scales of all linear layers of a model.
class Fp8Recipe {
 public:
  /// The three tensors of a layer's products.
  enum class Role : uint8_t { input, weight, gradient };
  static constexpr size_t kRoles = 3;

  explicit Fp8Recipe(const Fp8Options& options);
  /// A layer, or several whose weights are multiplied by the same inputs. ConfigError if some of them alone are in a
  /// group of InputRounding.
  size_t add_layer(std::span<const std::string> names = {});
  /// Passes from now on belong to the step after so many updates.
  void set_updates(int64_t updates) { updates_ = updates; }
  /// The layers of each group of InputRounding, by name. ConfigError for a pattern that is in no name.
  std::vector<std::vector<std::string>> layers_by_group() const;
  const Fp8Options& options() const { return options_; }

  /// How to round x. `note`: its largest value counts for the steps to come. ranks: those that each have a part of the
  /// tensor that x is a part of, which have one scale; collective where the scale is that of x itself. Null: x is
  /// whole.
  Fp8Rounding rounding(const Context& context, const Tensor& x, size_t layer, Role role, bool note,
                       Communicator* ranks = nullptr);
  /// How to round the inputs of a layer, each row by itself; not at all where no group has the layer. ranks: those that
  /// each have a part of every row; collective. Null: rows are whole.
  Fp8Rounding row_rounding(const Context& context, const Tensor& x, size_t layer, Communicator* ranks) const;
  /// The largest values noted since the last call, over `ranks` (Group::fp8_maxima): f64, for each layer and role.
  /// Undefined if no scale follows them. Collective.
  Tensor take_maxima(const Context& context, Communicator& ranks);
  /// These maxima become history; those that are not finite do not.
  void finish_step(std::span<const double> maxima);

  /// The histories, for checkpoints.
  std::vector<double> state() const;
  /// False, and nothing is changed, if the state is that of other layers.
  bool restore(std::span<const double> state);

 private:
  /// noted_, where it is kept.
  const Tensor& noted(const Context& context);
  /// The group of InputRounding whose patterns are in the name.
  std::optional<size_t> group_of(const std::string& name);

  struct Pattern {
    size_t group;
    NamePattern text;
    bool found = false;
  };
  struct Layer {
    std::vector<std::string> names;
    std::optional<size_t> group;  // of InputRounding
  };
  Fp8Options options_;
  std::vector<Pattern> patterns_;  // of InputRounding
  std::vector<Layer> layers_;
  int64_t updates_ = -1;                        // made before the step that is computed; -1: nobody trains
  std::vector<std::vector<double>> histories_;  // for each layer and role, those of the steps before, the latest last
  Tensor noted_;                                // for each layer and role, the largest value of this step (f32)
};

/// One layer's part of a recipe; without a recipe nothing is rounded.
struct Fp8Layer {
  std::shared_ptr<Fp8Recipe> recipe = {};
  size_t index = 0;
  /// The ranks that have parts of the layer's input, weight and gradient, which outlive it; null where these are whole.
  std::array<Communicator*, Fp8Recipe::kRoles> sharers = {};
  Communicator* row_sharers = nullptr;  // the ranks that have parts of each row of the input

  Fp8Rounding rounding(const Context& context, const Tensor& x, Fp8Recipe::Role role, bool note) const {
    if (!recipe) return {};
    if (recipe->options().inputs)
      return role == Fp8Recipe::Role::input ? recipe->row_rounding(context, x, index, row_sharers) : Fp8Rounding{};
    return recipe->rounding(context, x, index, role, note, sharers[static_cast<size_t>(role)]);
  }
};

}  // namespace nought
