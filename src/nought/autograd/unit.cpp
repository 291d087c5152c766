#include "nought/autograd/unit.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>

#include "nought/io/weight_formats.h"
#include "nought/kernels/four_bits.h"
#include "nought/kernels/kernels.h"

namespace nought {

bool decays(ParameterRole role) {
  switch (role) {
    case ParameterRole::matrix:
    case ParameterRole::expert:
    case ParameterRole::embedding:
    case ParameterRole::head:
    case ParameterRole::router:
    case ParameterRole::adapter:
    case ParameterRole::filter:
      return true;
    case ParameterRole::norm:
    case ParameterRole::bias:
    case ParameterRole::sink:
    case ParameterRole::choice_bias:
      return false;
  }
  return false;
}

bool can_be_trained(ParameterRole role) { return role != ParameterRole::choice_bias; }

bool can_be_quantized(ParameterRole role) {
  return role == ParameterRole::matrix || role == ParameterRole::expert || role == ParameterRole::embedding ||
         role == ParameterRole::head;
}

bool is_linear_matrix(const Parameter& parameter) {
  return (parameter.role == ParameterRole::matrix || parameter.role == ParameterRole::expert) &&
         parameter.placement.extents().rank() == 2 && parameter.name.ends_with(".weight");
}

const Context& UnitStore::context() const { throw Error("these parameters are kept without kernels to decode them"); }

int64_t Parameter::stored(int64_t elements) const {
  if (!quantized || codes.kind == CodeKind::q8_0) return elements;
  return is_four_bits(codes.kind) ? elements / 2 : bytes_of_blocks(*codes.format, elements);
}

ParameterView::ParameterView(Unit& unit, size_t first, size_t last, Shape shape)
    : unit_(&unit), first_(first), last_(last), shape_(shape) {
  int64_t numel = 0;
  for (size_t i = first; i <= last; ++i) numel += unit.parameters()[i].shape.numel();
  require<ShapeError>(numel == shape.numel(), "parameter {} of {} elements cannot have shape {}",
                      unit.parameters()[first].name, numel, shape);
}

Interval ParameterView::range() const {
  const auto& parameters = unit_->parameters();
  return {parameters[first_].range.begin, parameters[last_].range.end};
}

bool ParameterView::trained() const { return defined() && unit_->parameters()[first_].trainable; }

bool ParameterView::is_quantized() const { return defined() && unit_->parameters()[first_].quantized; }

Tensor ParameterView::value() const {
  require(!is_quantized(), "{} is kept quantized, and is read as if it were dense", unit_->parameters()[first_].name);
  const Tensor flat = unit_->store().values(*unit_, unit_->parameters()[first_].segment);
  return flat.flat(range().begin, range().end).reshape(shape_);
}

Weight ParameterView::weight() const {
  if (!is_quantized()) return value();
  const Parameter& first = unit_->parameters()[first_];
  UnitStore& store = unit_->store();
  const Segment& segment = unit_->segments()[first.segment];
  const Tensor codes = store.values(*unit_, first.segment);
  const auto [begin, end] = range();
  if (first.codes.kind == CodeKind::blocks) return {shape_, codes.flat(begin, end), bands()};
  const Tensor scales = store.values(*unit_, segment.scales);
  const Tensor of_blocks = scales.flat(begin / kCodeBlockBytes, end / kCodeBlockBytes);
  if (!is_four_bits(first.codes.kind))
    return {codes.flat(begin, end).reshape(shape_), of_blocks.reshape(scales_shape(shape_))};
  if (!first.nests_scales) return {first.codes.kind, shape_, codes.flat(begin, end), of_blocks};
  const Context& context = store.context();
  const Tensor nested = store.values(*unit_, segment.nested);
  const Tensor decoded = context.empty({of_blocks.numel()}, DType::f32, Category::workspace);
  for (size_t i = first_; i <= last_; ++i) {
    const Parameter& parameter = unit_->parameters()[i];
    const Interval blocks{(parameter.range.begin - begin) / kCodeBlockBytes,
                          (parameter.range.end - begin) / kCodeBlockBytes};
    if (blocks.empty()) continue;  // other ranks hold it
    context.run(DecodeScales{.codes = of_blocks.flat(blocks.begin, blocks.end),
                             .nested = nested.flat(parameter.nested.begin, parameter.nested.end),
                             .scales = decoded.flat(blocks.begin, blocks.end)});
  }
  return {first.codes.kind, shape_, codes.flat(begin, end), decoded};
}

std::vector<Weight::Band> ParameterView::bands() const {
  std::vector<Weight::Band> bands;
  int64_t end = 0;
  for (size_t i = first_; i <= last_; ++i) {
    const Parameter& parameter = unit_->parameters()[i];
    end += parameter.shape.numel();
    if (bands.empty() || bands.back().format != parameter.codes.format) bands.push_back({parameter.codes.format, end});
    bands.back().end = end;
  }
  return bands;
}

GradSink ParameterView::gradient(UnitStore& store) const {
  if (!defined()) return {};
  require(!is_quantized(), "{} is kept quantized, as codes, which are not trained: it has no gradient",
          unit_->parameters()[first_].name);
  if (!trained()) return {};
  GradSink sink = store.gradient(*unit_, first_, last_);
  if (sink) sink.into = sink.into.reshape(shape_);
  return sink;
}

void Unit::become_tile_of(Unit& whole) {
  require(parameters_.empty() && whole.tile_of_ == nullptr, "unit {} cannot become a tile of {}", name_, whole.name_);
  tile_of_ = &whole;
  whole.tiles_.push_back(this);
  owner_ = whole.owner_, here_ = whole.here_;
}

ParameterView Unit::add(std::string name, Shape shape, Init init, const ParameterOptions& options) {
  require(store_ == nullptr, "unit {} is in use; parameter {} must be declared before", name_, name);
  const bool trainable = options.trainable && can_be_trained(options.role);
  Placement placement = options.placement.value_or(Placement{shape});
  if (owner_) placement.cuts.push_back(*owner_);
  const Shape here = held(shape);
  require(!trainable || !options.dtype, "parameter {} is trained: it has the dtype of the run", name);
  parameters_.push_back({.name = std::move(name),
                         .shape = here,
                         .init = init,
                         .role = options.role,
                         .decay = options.decay.value_or(decays(options.role)),
                         .trainable = trainable,
                         .dtype = options.dtype,
                         .placement = std::move(placement),
                         .partial_along = options.partial_along,
                         .copied = is_copy(),
                         .order = tile_of_ != nullptr ? tile_of_->declared_++ : declared_++});
  place(parameters_.size() - 1);
  return ParameterView(*this, parameters_.size() - 1, parameters_.size() - 1, here);
}

Shape Unit::held(const Shape& shape) const {
  if (!elsewhere()) return shape;
  Shape nothing;
  for (int dim = 0; dim < shape.rank(); ++dim) nothing.push_back(dim == owner_->dim ? 0 : shape[dim]);
  return nothing;
}

ParameterView Unit::join(const ParameterView& first, const ParameterView& last, Shape shape) {
  bool changed = false;
  for (size_t i = first.first() + 1; i <= last.last(); ++i) changed |= !std::exchange(parameters_[i].joined, true);
  require(!changed || store_ == nullptr, "unit {} is in use; parameters must be joined before", name_);
  if (changed) lay_out();
  return ParameterView(*this, first.first(), last.last(), held(shape));
}

namespace {

DType dtype_of_codes(CodeKind kind) { return kind == CodeKind::q8_0 ? DType::i8 : DType::u8; }

DType dtype_of_scales(const Parameter& parameter) {
  if (!is_four_bits(parameter.codes.kind)) return DType::f16;
  return parameter.nests_scales ? DType::u8 : DType::f32;
}

/// How many scales of scales 4-bit codes have, with their offset.
int64_t nested_size(int64_t elements) {
  return elements == 0 ? 0 : 1 + ceil_div(elements / kFourBitBlock, kNestedBlock);
}

}  // namespace

size_t Unit::segment_for(const Parameter& parameter) {
  WeightCodes codes = parameter.codes;
  codes.format = nullptr;  // blocks of all formats lie in one segment
  const Segment wanted{
      .trainable = parameter.trainable,
      .dtype = parameter.quantized ? dtype_of_codes(parameter.codes.kind) : parameter.dtype,
      .content = parameter.quantized ? SegmentContent::codes : SegmentContent::values,
      .cut_along = parameter.placement.axes(),
      .partial_along = parameter.partial_along,
      .copied = parameter.copied,
      .codes = codes,
      .nested = parameter.nests_scales ? size_t{1} : 0,
  };
  const auto shares = [&](const Segment& segment) {
    return segment.trainable == wanted.trainable && segment.dtype == wanted.dtype &&
           segment.content == wanted.content && segment.cut_along == wanted.cut_along &&
           segment.partial_along == wanted.partial_along && segment.copied == wanted.copied &&
           segment.codes == wanted.codes && (segment.nested > 0) == (wanted.nested > 0);
  };
  const auto found = std::find_if(segments_.begin(), segments_.end(), shares);
  if (found != segments_.end()) return static_cast<size_t>(found - segments_.begin());
  const size_t segment = segments_.size();
  segments_.push_back(wanted);
  if (!parameter.quantized || codes.kind == CodeKind::blocks) return segment;
  const auto add = [&](SegmentContent content, DType dtype) {
    segments_.push_back({.trainable = false,
                         .dtype = dtype,
                         .content = content,
                         .cut_along = wanted.cut_along,
                         .copied = wanted.copied});
    return segments_.size() - 1;
  };
  segments_[segment].scales = add(SegmentContent::scales, dtype_of_scales(parameter));
  if (parameter.nests_scales) segments_[segment].nested = add(SegmentContent::nested, DType::f32);
  return segment;
}

void Unit::place(size_t index) {
  Parameter& parameter = parameters_[index];
  parameter.segment = segment_for(parameter);
  Segment* const found = &segments_[parameter.segment];
  if (parameter.joined) {
    const Parameter& before = parameters_[index - 1];
    require<ConfigError>(before.quantized == parameter.quantized,
                         "{} and {} are computed as one product: keep both as codes or neither", before.name,
                         parameter.name);
    require(before.placement.axes() == parameter.placement.axes(),
            "{} and {} are one tensor and cut along different axes", before.name, parameter.name);
    require<ConfigError>(before.segment == parameter.segment,
                         "{} and {} are computed as one product: train both or freeze both", before.name,
                         parameter.name);
  }
  const int64_t begin = parameter.joined ? found->size : round_up(found->size, kAlignment);
  parameter.range = {begin, begin + parameter.stored(parameter.shape.numel())};
  found->parameters.push_back(index);
  found->size = parameter.range.end;
  if (!parameter.quantized || parameter.codes.kind == CodeKind::blocks) return;
  segments_[found->scales].size = found->size / kCodeBlockBytes;
  if (!parameter.nests_scales) return;
  Segment& nested = segments_[found->nested];
  parameter.nested = {nested.size, nested.size + nested_size(parameter.shape.numel())};
  nested.size = parameter.nested.end;
}

void Unit::lay_out() {
  segments_.clear();
  for (size_t i = 0; i < parameters_.size(); ++i) place(i);
}

void Unit::choose_trained(const std::function<bool(const Parameter&)>& is_trained) {
  require(store_ == nullptr, "unit {} is in use; what is trained must be chosen before", name_);
  for (Parameter& parameter : parameters_)
    if (can_be_trained(parameter.role) && !parameter.dtype && !parameter.quantized)
      parameter.trainable = is_trained(parameter);
  lay_out();
}

void Unit::become_codes(Parameter& parameter, WeightCodes codes) const {
  const bool four = is_four_bits(codes.kind), blocks = codes.kind == CodeKind::blocks;
  const int bits = four ? 4 : blocks ? codes.format->bits : 8;
  require<ConfigError>(can_be_quantized(parameter.role) && !parameter.dtype,
                       "{} cannot be kept quantized to {} bits: only matrices of products and tables can",
                       parameter.name, bits);
  const Shape& shape = parameter.shape;
  if (four) {
    require<ConfigError>(shape.rank() > 1 && shape.numel() % kFourBitBlock == 0,
                         "{} {} cannot be kept quantized to 4 bits: its elements are not whole blocks of {}",
                         parameter.name, shape, kFourBitBlock);
  } else if (blocks) {
    require<ConfigError>(shape.rank() > 1 && shape[-1] % codes.format->block == 0,
                         "{} {} cannot be kept as {}: its rows are not whole blocks of {}", parameter.name, shape,
                         codes.format->name, codes.format->block);
  } else {
    require<ConfigError>(shape.rank() > 1 && shape[-1] > 0 && shape[-1] % kCodeBlock == 0,
                         "{} {} cannot be kept quantized to 8 bits: its rows are not whole blocks of {}",
                         parameter.name, shape, kCodeBlock);
  }
  parameter.codes = codes;
  // The blocks of scales are those of the whole tensor: a rank that holds a part of it has them of no whole ones.
  parameter.nests_scales = four && codes.double_quantized && (elsewhere() || shape == parameter.placement.global);
  parameter.trainable = false;
}

void Unit::choose_quantized(const std::function<bool(const Parameter&)>& is_quantized, WeightCodes codes) {
  choose_codes([&](const Parameter& each) { return is_quantized(each) ? std::optional(codes) : std::nullopt; });
}

void Unit::choose_codes(const std::function<std::optional<WeightCodes>(const Parameter&)>& codes_of) {
  require(store_ == nullptr, "unit {} is in use; what is kept as codes must be chosen before", name_);
  for (Parameter& parameter : parameters_) {
    const std::optional<WeightCodes> codes = codes_of(parameter);
    parameter.quantized = codes.has_value();
    parameter.codes = {}, parameter.nests_scales = false, parameter.nested = {};
    if (codes) become_codes(parameter, *codes);
  }
  lay_out();
}

int64_t Unit::numel() const {
  int64_t count = 0;
  for (const Parameter& parameter : parameters_) count += parameter.shape.numel();
  return count;
}

bool Unit::trained() const {
  return std::any_of(segments_.begin(), segments_.end(), [](const Segment& segment) { return segment.trainable; }) ||
         std::any_of(tiles_.begin(), tiles_.end(), [](const Unit* tile) { return tile->trained(); });
}

UnitStore& Unit::store() const {
  require(store_ != nullptr, "unit {} has no storage yet: make a ShardedModel of its model first", name_);
  return *store_;
}

std::vector<GlobalTensor> global_tensors(const Unit& unit) {
  if (unit.tile_of() != nullptr) return {};
  std::vector<GlobalTensor> tensors;
  std::unordered_map<std::string_view, size_t> tiled;  // where the tensor of that name is
  const auto add = [&](const Unit& of) {
    for (size_t i = 0; i < of.parameters().size(); ++i) {
      const Parameter& parameter = of.parameters()[i];
      const auto [found, is_new] = tiled.try_emplace(parameter.name, tensors.size());
      if (is_new || !parameter.placement.tile) {
        tensors.push_back({{{&of, i}}});
      } else {
        tensors[found->second].parts.push_back({&of, i});
      }
    }
  };
  add(unit);
  for (const Unit* tile : unit.tiles()) add(*tile);
  std::stable_sort(tensors.begin(), tensors.end(),
                   [](const GlobalTensor& a, const GlobalTensor& b) { return a.first().order < b.first().order; });
  return tensors;
}

}  // namespace nought
