// A UnitStore for tests of layers and functions: whole parameters and gradients of any dtype, f64 too, on one rank.
// Parameters that are kept as codes start as the codes of what they would be.
#pragma once

#include <string>
#include <vector>

#include "nought/nn/model.h"
#include "nought/tensor/random.h"

namespace nought::test {

class LocalStore final : public UnitStore {
 public:
  LocalStore(const Context& context, const std::vector<std::unique_ptr<Unit>>& units, DType dtype) : dtype_(dtype) {
    for (size_t i = 0; i < units.size(); ++i) attach(context, *units[i], i, dtype);
  }
  LocalStore(const Context& context, Unit& unit, DType dtype) : dtype_(dtype) { attach(context, unit, 0, dtype); }

  void before_forward(Unit& unit) override { events.push_back("before_forward " + unit.name()); }
  void after_forward(Unit& unit) override { events.push_back("after_forward " + unit.name()); }
  void before_backward(Unit& unit) override { events.push_back("before_backward " + unit.name()); }
  void after_backward(Unit& unit) override { events.push_back("after_backward " + unit.name()); }
  void enter_part(const char* name) override { events.push_back(std::string("enter ") + name); }
  void leave_part() override { events.push_back("leave"); }
  Tensor values(const Unit& unit, size_t segment) override { return values_[unit.index()][segment]; }
  DType dtype() const override { return dtype_; }
  GradSink gradient(const Unit& unit, size_t first, size_t last) override {
    auto& written = written_[unit.index()];
    const Parameter &begin = unit.parameters()[first], &end = unit.parameters()[last];
    const bool accumulate = written[first];
    for (size_t i = first; i <= last; ++i) written[i] = true;
    return {gradients_[unit.index()][begin.segment].flat(begin.range.begin, end.range.end), accumulate};
  }

  /// The buffer of one segment, with the room between parameters: it is 0.
  Tensor flat_values(size_t unit = 0, size_t segment = 0) const { return values_[unit][segment]; }
  Tensor flat_gradients(size_t unit = 0, size_t segment = 0) const { return gradients_[unit][segment]; }
  Tensor values_of(const Unit& unit, const Parameter& parameter) const {
    return flat_values(unit.index(), parameter.segment).flat(parameter.range.begin, parameter.range.end);
  }
  Tensor gradient_of(const Unit& unit, const Parameter& parameter) const {
    return flat_gradients(unit.index(), parameter.segment).flat(parameter.range.begin, parameter.range.end);
  }

  std::vector<std::string> events;

 private:
  void attach(const Context& context, Unit& unit, size_t index, DType dtype) {
    unit.attach(this, index);
    values_.emplace_back();
    gradients_.emplace_back();
    written_.emplace_back(unit.parameters().size(), false);
    for (const Segment& segment : unit.segments()) {
      const DType held = segment.content == SegmentContent::values ? dtype : *segment.dtype;
      values_.back().push_back(context.zeros({segment.size}, held, Category::parameters));
      gradients_.back().push_back(context.zeros({segment.size}, dtype, Category::gradients));
    }
    int64_t declared = 0;  // elements of the parameters before
    for (const Parameter& parameter : unit.parameters()) {
      const Tensor values =
          parameter.quantized ? context.empty({parameter.range.size()}, dtype) : values_of(unit, parameter);
      visit_float(dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        for (int64_t i = 0; i < values.numel(); ++i)
          values.data<T>()[i] = T(0.3 * normal_at(100 + index, static_cast<uint64_t>(declared + i)));
      });
      declared += values.numel();
      if (!parameter.quantized) continue;
      const auto [begin, end] = parameter.range;
      const Tensor scales = flat_values(index, unit.segments()[parameter.segment].scales);
      context.run(QuantizeBlocks{.x = values,
                                 .codes = values_of(unit, parameter),
                                 .scales = scales.flat(begin / kCodeBlock, end / kCodeBlock)});
    }
  }
  DType dtype_;
  std::vector<std::vector<Tensor>> values_, gradients_;  // by Unit and segment
  std::vector<std::vector<bool>> written_;
};

}  // namespace nought::test
