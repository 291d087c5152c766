// A UnitStore for tests of layers and functions: whole parameters and gradients of any dtype, f64 too, on one rank.
#pragma once

#include <string>
#include <vector>

#include "nought/nn/model.h"
#include "nought/tensor/random.h"

namespace nought::test {

class LocalStore final : public UnitStore {
 public:
  LocalStore(const Context& context, const std::vector<std::unique_ptr<Unit>>& units, DType dtype) {
    for (size_t i = 0; i < units.size(); ++i) attach(context, *units[i], i, dtype);
  }
  LocalStore(const Context& context, Unit& unit, DType dtype) { attach(context, unit, 0, dtype); }

  void before_forward(Unit& unit) override { events.push_back("before_forward " + unit.name()); }
  void after_forward(Unit& unit) override { events.push_back("after_forward " + unit.name()); }
  void before_backward(Unit& unit) override { events.push_back("before_backward " + unit.name()); }
  void after_backward(Unit& unit) override { events.push_back("after_backward " + unit.name()); }
  void enter_part(const char* name) override { events.push_back(std::string("enter ") + name); }
  void leave_part() override { events.push_back("leave"); }
  Tensor values(const Unit& unit) override { return values_[unit.index()]; }
  GradSink gradient(const Unit& unit, size_t first, size_t last) override {
    auto& written = written_[unit.index()];
    const bool accumulate = written[first];
    for (size_t i = first; i <= last; ++i) written[i] = true;
    return {gradients_[unit.index()].flat(unit.parameters()[first].range.begin, unit.parameters()[last].range.end),
            accumulate};
  }

  Tensor flat_values(size_t unit = 0) const { return values_[unit]; }
  Tensor flat_gradients(size_t unit = 0) const { return gradients_[unit]; }
  void clear_gradients() {
    for (auto& written : written_) written.assign(written.size(), false);
    for (Tensor& gradient : gradients_) zero(gradient);
  }

  std::vector<std::string> events;

 private:
  void attach(const Context& context, Unit& unit, size_t index, DType dtype) {
    unit.attach(this, index);
    values_.push_back(context.zeros({unit.numel()}, dtype, Category::parameters));
    gradients_.push_back(context.zeros({unit.numel()}, dtype, Category::gradients));
    written_.emplace_back(unit.parameters().size(), false);
    visit_float(dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      for (int64_t i = 0; i < unit.numel(); ++i)
        values_.back().template data<T>()[i] = T(0.3 * normal_at(100 + index, static_cast<uint64_t>(i)));
    });
  }
  std::vector<Tensor> values_, gradients_;
  std::vector<std::vector<bool>> written_;
};

}  // namespace nought::test
