#include "nought/zero/four_bits.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <vector>

#include "nought/kernels/four_bits.h"
#include "nought/zero/placement.h"

namespace nought {

namespace {

/// Elements that are quantized at a time: whole blocks.
constexpr int64_t kQuantizedAtOnce = int64_t{1} << 20;

/// The scales of a tensor: f32, or as codes.
struct AllScales {
  std::vector<float> plain;  // with codes, those that the codes stand for
  NestedScales nested;
};

/// One parameter: its global tensor as blocks of codes.
class FourBitParameter {
 public:
  FourBitParameter(const StateSource& source, const Parameter& parameter)
      : source_(source), parameter_(parameter), stored_(source.four_bits(parameter)) {
    if (stored_) check_stored();
  }

  int64_t numel() const { return parameter_.placement.global.numel(); }
  /// Whether a scale depends on the values of its block alone.
  bool scales_are_of_blocks() const { return !stored_ && !parameter_.codes.double_quantized; }

  /// The codes of `elements` of the flattened tensor, whole blocks; and their scales, from the first of these on.
  void read(Interval elements, uint8_t* codes, float* scales) const {
    if (stored_) {
      std::memcpy(codes, stored_->codes.data() + elements.begin / 2, static_cast<size_t>(elements.size() / 2));
      return;
    }
    quantize(elements, [&](Interval block, std::span<const float> values) {
      const int64_t at = block.begin - elements.begin;
      scales[at / kFourBitBlock] = quantize_four_bits(parameter_.codes.kind, values, codes + at / 2);
    });
  }

  /// All scales. made: those of all blocks if read() went through the whole tensor; else empty.
  AllScales scales(std::vector<float> made) const {
    AllScales all;
    if (stored_) return stored_scales();
    if (made.empty()) made = all_scales();
    all.plain = std::move(made);
    if (!parameter_.codes.double_quantized) return all;
    all.nested = nest_scales(all.plain);
    for (size_t i = 0; i < all.plain.size(); ++i) all.plain[i] = all.nested.at(static_cast<int64_t>(i));
    return all;
  }

 private:
  void check_stored() const {
    require<ConfigError>(stored_->kind == parameter_.codes.kind,
                         "{} is stored as {} and is to be kept as {}: set quantization_config.bnb_4bit_quant_type to "
                         "\"{}\"",
                         parameter_.name, name_of(stored_->kind), name_of(parameter_.codes.kind),
                         name_of(stored_->kind));
    require<ConfigError>(!stored_->nested.empty() || !parameter_.codes.double_quantized,
                         "the scales of {} are stored as fp32 and are to be kept quantized: set "
                         "quantization_config.bnb_4bit_use_double_quant to false",
                         parameter_.name);
  }

  AllScales stored_scales() const {
    AllScales all;
    const auto blocks = static_cast<size_t>(numel() / kFourBitBlock);
    all.plain.resize(blocks);
    if (stored_->nested.empty()) {
      std::memcpy(all.plain.data(), stored_->scales.data(), blocks * sizeof(float));
      return all;
    }
    all.nested = stored_->nested_scales();
    for (size_t i = 0; i < blocks; ++i) all.plain[i] = all.nested.at(static_cast<int64_t>(i));
    return all;
  }

  std::vector<float> all_scales() const {
    std::vector<float> scales(static_cast<size_t>(numel() / kFourBitBlock));
    std::vector<uint8_t> codes(kCodeBlockBytes);
    quantize({0, numel()}, [&](Interval block, std::span<const float> values) {
      scales[static_cast<size_t>(block.begin / kFourBitBlock)] =
          quantize_four_bits(parameter_.codes.kind, values, codes.data());
    });
    return scales;
  }

  template <class F>
  void quantize(Interval elements, const F& f) const {
    for_each_block(source_, parameter_, elements, *Memory::create(), f);
  }

  const StateSource& source_;
  const Parameter& parameter_;
  std::optional<StoredFourBits> stored_;
};

/// The part of a stored segment that lies in an interval of its elements.
Tensor part(const KeptSegment& segment, Interval elements) {
  return segment.stored.flat(elements.begin - segment.kept.begin, elements.end - segment.kept.begin);
}

void require_whole_blocks(const Parameter& parameter, const std::vector<Interval>& elements) {
  for (const Interval& each : elements)
    require<ConfigError>(each.begin % kFourBitBlock == 0 && each.size() % kFourBitBlock == 0,
                         "parameter {} {} cannot be kept quantized to 4 bits: ranks share it, and not in whole blocks "
                         "of {}: use fewer ranks of tp_size",
                         parameter.name, parameter.placement.global, kFourBitBlock);
}

/// Fills what a rank keeps of one parameter.
class ParameterLoad {
 public:
  ParameterLoad(const Context& context, const StateSource& source, const Parameter& parameter, const KeptFourBits& kept)
      : context_(context),
        parameter_(parameter),
        kept_(kept),
        whole_(source, parameter),
        bytes_(intersect(parameter.range, kept.codes.kept)),
        nested_(intersect(parameter.nested, kept.nested.kept)) {}

  void run(const Mesh& mesh) {
    if (bytes_.empty() && nested_.empty()) return;
    if (!bytes_.empty()) {
      const int64_t first = 2 * (bytes_.begin - parameter_.range.begin);
      elements_ = global_elements(parameter_, mesh, {first, first + 2 * bytes_.size()});
      require_whole_blocks(parameter_, elements_);
    }
    std::vector<float> made = load_codes();
    if (whole_.scales_are_of_blocks()) return keep_scales(made);
    const bool of_all = elements_.size() == 1 && elements_.front().size() == whole_.numel();
    const AllScales scales = whole_.scales(of_all ? std::move(made) : std::vector<float>{});
    load_nested(scales.nested);
    if (parameter_.nests_scales) {
      keep_scales(kept_of(scales.nested.codes));
    } else {
      keep_scales(kept_of(scales.plain));
    }
  }

 private:
  /// Returns the scales of the blocks, as far as they were made of values.
  std::vector<float> load_codes() const {
    if (bytes_.empty()) return {};
    std::vector<uint8_t> codes(static_cast<size_t>(bytes_.size()));
    std::vector<float> scales(codes.size() / kCodeBlockBytes);
    int64_t done = 0;
    for (const Interval& each : elements_) {
      whole_.read(each, codes.data() + done, scales.data() + done / kCodeBlockBytes);
      done += each.size() / 2;
    }
    context_.upload(std::span<const uint8_t>(codes), part(kept_.codes, bytes_));
    return scales;
  }

  void load_nested(const NestedScales& scales) const {
    if (nested_.empty()) return;
    std::vector<float> values{scales.offset};
    values.insert(values.end(), scales.scales.begin(), scales.scales.end());
    context_.upload(std::span<const float>(values).subspan(static_cast<size_t>(nested_.begin - parameter_.nested.begin),
                                                           static_cast<size_t>(nested_.size())),
                    part(kept_.nested, nested_));
  }

  /// The part of all scales that belongs to what this rank keeps.
  template <class T>
  std::vector<T> kept_of(const std::vector<T>& all) const {
    std::vector<T> mine;
    for (const Interval& each : elements_)
      mine.insert(mine.end(), all.begin() + each.begin / kFourBitBlock, all.begin() + each.end / kFourBitBlock);
    return mine;
  }

  template <class T>
  void keep_scales(const std::vector<T>& scales) const {
    if (bytes_.empty()) return;
    context_.upload(std::span<const T>(scales),
                    part(kept_.scales, {bytes_.begin / kCodeBlockBytes, bytes_.end / kCodeBlockBytes}));
  }

  const Context& context_;
  const Parameter& parameter_;
  const KeptFourBits& kept_;
  const FourBitParameter whole_;
  const Interval bytes_, nested_;
  std::vector<Interval> elements_;  // the part of the global tensor that is in bytes_
};

}  // namespace

NestedScales StoredFourBits::nested_scales() const {
  NestedScales result;
  result.offset = offset;
  const auto* const bytes = reinterpret_cast<const uint8_t*>(scales.data());
  result.codes.assign(bytes, bytes + scales.size());
  result.scales.resize(nested.size() / sizeof(float));
  std::memcpy(result.scales.data(), nested.data(), nested.size());
  return result;
}

void for_each_block(const StateSource& source, const Parameter& parameter, Interval elements, Memory& memory,
                    const std::function<void(Interval block, std::span<const float> values)>& f) {
  for (int64_t begin = elements.begin; begin < elements.end; begin += kQuantizedAtOnce) {
    const Interval stretch{begin, std::min(elements.end, begin + kQuantizedAtOnce)};
    const Tensor x = Tensor::empty(memory, {stretch.size()}, DType::f32, Category::workspace, memory.host_pool());
    source.fill(StateKind::master, parameter, stretch, x);
    const std::span<const float> values = x.span<float>();
    require(std::all_of(values.begin(), values.end(), [](float value) { return std::isfinite(value); }),
            "{} holds a value that is not finite", parameter.name);
    for (int64_t at = 0; at < stretch.size(); at += kFourBitBlock) {
      const Interval block{at, std::min(stretch.size(), at + kFourBitBlock)};
      f({begin + block.begin, begin + block.end},
        values.subspan(static_cast<size_t>(block.begin), static_cast<size_t>(block.size())));
    }
  }
}

void load_four_bits(const Context& context, const Mesh& mesh, const StateSource& source, const Unit& unit,
                    size_t segment, const KeptFourBits& kept) {
  if (context.memory->is_virtual()) return;  // a dry run has no values, and codes of a large model take a while
  for (const size_t index : unit.segments()[segment].parameters)
    ParameterLoad(context, source, unit.parameters()[index], kept).run(mesh);
}

}  // namespace nought
