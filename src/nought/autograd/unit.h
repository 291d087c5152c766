// Unit: the granularity of everything that ZeRO does: the parameters that are gathered, reduced and released together.
//
// A Unit is the embedding, one block, or the head. It names its parameters and lays them out, in the order of their
// declaration, in one flat buffer. The bytes belong to a UnitStore (zero/ implements it); layers see views.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "nought/base/math.h"
#include "nought/tensor/tensor.h"

namespace nought {

class Unit;

/// How a parameter starts. Values are a function of (seed, parameter name, index), never of the layout.
struct Init {
  enum class Kind : uint8_t { zeros, ones, normal };
  Kind kind = Kind::zeros;
  double std = 0;

  static Init zeros() { return {Kind::zeros, 0}; }
  static Init ones() { return {Kind::ones, 0}; }
  static Init normal(double std) { return {Kind::normal, std}; }
};

struct Parameter {
  std::string name;
  Shape shape;
  Interval range;  // elements in the Unit's flat buffer
  Init init;
  bool decay = true;  // takes part in weight decay (norms and biases do not)
};

/// Where a backward kernel writes a gradient: `into`, overwriting or adding. Undefined if nobody wants it.
struct GradSink {
  Tensor into;
  bool accumulate = false;
  explicit operator bool() const { return into.defined(); }
};

/// One parameter, or several adjacent ones seen as one tensor (q, k and v as one projection). Cheap to copy; the Unit
/// must outlive it. It stores no tensor, so that a saved view pins no memory.
class ParameterView {
 public:
  ParameterView() = default;
  ParameterView(Unit& unit, size_t first, size_t last, Shape shape);

  bool defined() const { return unit_ != nullptr; }
  const Shape& shape() const { return shape_; }
  Unit& unit() const { return *unit_; }
  size_t first() const { return first_; }
  size_t last() const { return last_; }
  Interval range() const;
  /// The values; Error unless the Unit is leased (between its before_ and after_ events).
  Tensor value() const;
  /// Where this view's gradient goes: the first writer of a reduction overwrites, later ones add.
  GradSink gradient() const;

 private:
  Unit* unit_ = nullptr;
  size_t first_ = 0, last_ = 0;  // parameters [first, last]
  Shape shape_;
};

/// Owner of the Units' bytes, and observer of the four events that bracket a Unit's work.
class UnitStore {
 public:
  virtual ~UnitStore() = default;
  virtual void before_forward(Unit& unit) = 0;
  virtual void after_forward(Unit& unit) = 0;
  virtual void before_backward(Unit& unit) = 0;
  /// All gradients of the Unit's parameters are final for this micro-batch.
  virtual void after_backward(Unit& unit) = 0;
  /// The flat values; Error without a lease.
  virtual Tensor values(const Unit& unit) = 0;
  /// The sink for parameters [first, last] of the Unit, as a rank-1 tensor.
  virtual GradSink gradient(const Unit& unit, size_t first, size_t last) = 0;
  /// What is computed until leave_part() is a part of the Unit at work, "attention": for reports. Parts may nest;
  /// `name` lives as long as the program.
  virtual void enter_part(const char* /*name*/) {}
  virtual void leave_part() {}
};

class Unit {
 public:
  explicit Unit(std::string name) : name_(std::move(name)) {}
  Unit(const Unit&) = delete;
  Unit& operator=(const Unit&) = delete;

  const std::string& name() const { return name_; }
  /// Declares a parameter; its place is after all earlier ones.
  ParameterView add(std::string name, Shape shape, Init init, bool decay = true);
  /// Several parameters declared one after another, as one tensor of the given shape.
  ParameterView join(const ParameterView& first, const ParameterView& last, Shape shape);
  /// This Unit also reads (and adds gradients to) parameters of another, as a head does with a tied embedding.
  void borrow(Unit& other) { borrowed_.push_back(&other); }

  const std::vector<Parameter>& parameters() const { return parameters_; }
  const std::vector<Unit*>& borrowed() const { return borrowed_; }
  int64_t numel() const { return parameters_.empty() ? 0 : parameters_.back().range.end; }

  void attach(UnitStore* store, size_t index) { store_ = store, index_ = index; }
  UnitStore& store() const;
  /// Its place in the order of the forward pass.
  size_t index() const { return index_; }

 private:
  std::string name_;
  std::vector<Parameter> parameters_;
  std::vector<Unit*> borrowed_;
  UnitStore* store_ = nullptr;
  size_t index_ = 0;
};

}  // namespace nought
