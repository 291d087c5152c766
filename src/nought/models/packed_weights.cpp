#include "nought/models/packed_weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include <fmt/format.h>

#include "nought/base/text.h"
#include "nought/io/strict_json.h"

namespace nought {

namespace {

constexpr int64_t kMostOfBlock = 1 << 20;  // elements with one scale; bitsandbytes has 4096 at most

PackedScales::Kind kind_of(DType dtype) {
  return dtype == DType::f16    ? PackedScales::Kind::f16
         : dtype == DType::bf16 ? PackedScales::Kind::bf16
                                : PackedScales::Kind::f32;
}

std::string file_dtype(const TensorEntry& entry) { return std::string(safetensors_name(entry.dtype, entry.packed)); }

bool is_plain_float(const TensorEntry& entry) {
  return !entry.packed && is_float(entry.dtype) && entry.dtype != DType::f64;
}

}  // namespace

/// Opens one parameter.
class PackedWeights::Opener {
 public:
  Opener(const PackedWeights& all, const std::string& parameter, const Shape& shape)
      : files_(all.files_),
        config_(all.config_),
        parameter_(parameter),
        module_(parameter.ends_with(".weight") ? parameter.substr(0, parameter.size() - 7) : parameter),
        shape_(shape) {
    found_.tensor.shape = shape;
    matrix().rows = shape.rank() == 2 ? shape[0] : 0;
    matrix().columns = shape.rank() == 2 ? shape[1] : 0;
  }

  std::optional<Found> open() {
    if (config_.method == PackedMethod::mxfp4) return open_mxfp4();
    if (shape_.rank() != 2 || !parameter_.ends_with(".weight")) return std::nullopt;
    bool open = false;
    if (config_.method == PackedMethod::gptq) open = open_gptq();
    if (config_.method == PackedMethod::awq) open = open_awq();
    if (config_.method == PackedMethod::compressed_tensors) open = open_compressed();
    if (config_.method == PackedMethod::fp8) open = open_fp8();
    if (config_.method == PackedMethod::bitsandbytes) open = open_bitsandbytes();
    if (open) return std::move(found_);
    refuse_codes_alone();
    return std::nullopt;
  }

 private:
  PackedMatrix& matrix() { return found_.tensor.matrix; }
  int64_t out() const { return shape_[0]; }
  int64_t in() const { return shape_[1]; }

  template <class... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    fail<IoError>("{}: {}: {}", files_.path().string(), excerpt(module_),
                  fmt::format(format, std::forward<Args>(args)...));
  }

  bool has(const std::string& name) const { return files_.contains(name); }

  /// A tensor that must be there, with one of these shapes.
  const TensorEntry& part(const std::string& name, std::string_view what, std::initializer_list<Shape> shapes) {
    const TensorEntry* entry = files_.find(name);
    if (entry == nullptr) refuse("its {} are missing: there is no tensor {}", what, excerpt(name));
    const auto fits = [&](const Shape& shape) { return entry->shape == shape; };
    if (std::none_of(shapes.begin(), shapes.end(), fits))
      refuse("{} has shape {}, expected {} for a weight {}", excerpt(name), entry->shape, *shapes.begin(), shape_);
    found_.parts.push_back(name);
    return *entry;
  }
  const TensorEntry& part(const std::string& name, std::string_view what, std::initializer_list<Shape> shapes,
                          std::initializer_list<std::string_view> dtypes) {
    const TensorEntry& entry = part(name, what, shapes);
    const std::string dtype = file_dtype(entry);
    if (std::find(dtypes.begin(), dtypes.end(), dtype) == dtypes.end())
      refuse("{} has dtype {}, expected {}", excerpt(name), dtype, fmt::join(dtypes, " or "));
    return entry;
  }
  std::span<const std::byte> bytes(const TensorEntry& entry) const { return files_.file_of(entry.name).raw(entry); }

  void set_format(std::string_view name, int bits) {
    matrix().format = &weight_format(name);
    matrix().bits = bits;
    matrix().values = code_values(matrix().format->codes, bits);
    found_.format = matrix().format->bits == bits ? std::string(name) : fmt::format("{}, {} bits", name, bits);
  }
  void set_scales(const TensorEntry& entry) {
    PackedScales::Kind kind = kind_of(entry.dtype);
    if (entry.packed) kind = *entry.packed == Float8::e4m3 ? PackedScales::Kind::e4m3 : PackedScales::Kind::e8m0;
    if (entry.dtype == DType::u8) kind = PackedScales::Kind::e8m0;
    matrix().scales = {bytes(entry), kind};
  }

  /// Codes of a matrix without what says their values: a folder that lost a tensor.
  void refuse_codes_alone() const {
    const TensorEntry* entry = files_.find(parameter_);
    if (entry == nullptr) return;
    if (!is_float(entry->dtype) || entry->packed)
      refuse("its scales are missing: {} holds {} alone", excerpt(parameter_), file_dtype(*entry));
  }

  /// Groups of columns that are no consecutive ones, where a tensor says so.
  void set_groups(const std::string& name, int64_t groups) {
    matrix().num_groups = groups;
    if (!has(name)) return;
    const TensorEntry& entry = part(name, "groups", {{in()}}, {"I32"});
    std::vector<int32_t> group_of(static_cast<size_t>(in()));
    std::memcpy(group_of.data(), bytes(entry).data(), bytes(entry).size());
    bool plain = true;
    for (int64_t i = 0; i < in(); ++i) {
      const int32_t group = group_of[static_cast<size_t>(i)];
      if (group < 0 || group >= groups)
        refuse("{} names group {} at {}, there are {}: it is out of range", excerpt(name), group, i, groups);
      plain = plain && group == i / matrix().column_block;
    }
    if (!plain) matrix().group_of = std::move(group_of);
  }

  struct Grouping {
    int bits;
    int64_t size;  // a group has so many columns
    int64_t count;
  };
  Grouping grouping() const {
    const auto own = config_.overrides.find(module_);
    const int bits = own == config_.overrides.end() ? config_.bits : own->second.bits;
    const int64_t size = own == config_.overrides.end() ? config_.group_size : own->second.group_size;
    const int64_t columns = size == -1 ? in() : std::min(size, in());
    return {bits, columns, ceil_div(in(), columns)};
  }

  bool open_gptq() {
    if (!has(module_ + ".qweight")) return false;
    const auto [bits, size, groups] = grouping();
    if (bits != 2 && bits != 3 && bits != 4 && bits != 8) refuse("has {} bits; 2, 3, 4 and 8 are read", bits);
    set_format("gptq", bits);
    matrix().codes = bytes(part(module_ + ".qweight", "codes", {{ceil_div(in() * bits, 32), out()}}, {"I32"}));
    matrix().column_block = size;
    set_scales(part(module_ + ".scales", "scales", {{groups, out()}}, {"F16", "BF16", "F32"}));
    matrix().scales_by_group = true;
    matrix().zeros = ZeroPoints::along_rows;
    matrix().zero_codes =
        bytes(part(module_ + ".qzeros", "zero points", {{groups, ceil_div(out() * bits, 32)}}, {"I32"}));
    matrix().one_less = config_.first_version;
    set_groups(module_ + ".g_idx", groups);
    return true;
  }

  bool open_awq() {
    if (!has(module_ + ".qweight")) return false;
    const auto [bits, size, groups] = grouping();
    if (bits != 4) refuse("has {} bits; AWQ of 4 is read", bits);
    if (out() % 8 != 0) refuse("has {} outputs, AWQ packs eight of them at a time", out());
    set_format("awq", bits);
    matrix().codes = bytes(part(module_ + ".qweight", "codes", {{in(), out() / 8}}, {"I32"}));
    matrix().column_block = size;
    set_scales(part(module_ + ".scales", "scales", {{groups, out()}}, {"F16", "BF16", "F32"}));
    matrix().scales_by_group = true;
    matrix().zeros = ZeroPoints::awq;
    matrix().zero_codes = bytes(part(module_ + ".qzeros", "zero points", {{groups, out() / 8}}, {"I32"}));
    return true;
  }

  /// The group of compressed-tensors that fits the shape of the scales.
  const QuantizationConfig::Group& group_with(std::initializer_list<std::string_view> formats, int bits) const {
    for (const QuantizationConfig::Group& each : config_.groups)
      if (each.bits == bits && std::find(formats.begin(), formats.end(), each.format) != formats.end()) return each;
    refuse("holds {} bits as {}, which no group of config_groups describes", bits, *formats.begin());
  }

  /// Scales of tensors, channels, groups or blocks: by their shape.
  void set_compressed_scales(const QuantizationConfig::Group& group) {
    const std::string name = module_ + ".weight_scale";
    const TensorEntry* entry = files_.find(name);
    const int64_t size = group.group_size == -1 ? in() : std::min(group.group_size, in());
    if (!group.block.empty()) {
      matrix().row_block = group.block[0], matrix().column_block = group.block[1];
      entry = &part(name, "scales", {{ceil_div(out(), group.block[0]), ceil_div(in(), group.block[1])}},
                    {"BF16", "F16", "F32"});
    } else if (entry != nullptr && entry->shape.numel() == 1 && out() > 1) {
      matrix().row_block = out(), matrix().column_block = in();
      entry = &part(name, "scales", {{1}, {}, {1, 1}}, {"BF16", "F16", "F32"});
    } else {
      matrix().column_block = size;
      entry = &part(name, "scales",
                    {{out(), ceil_div(in(), size)}, size == in() ? Shape{out()} : Shape{out(), ceil_div(in(), size)}},
                    {"BF16", "F16", "F32"});
    }
    set_scales(*entry);
  }

  bool open_compressed() {
    if (has(module_ + ".weight_packed")) {
      const TensorEntry* packed = files_.find(module_ + ".weight_packed");
      file_dtype(*packed) == "U8" ? open_float4() : open_packed_integers(*packed);
      return true;
    }
    const TensorEntry* codes = files_.find(parameter_);
    if (codes == nullptr || is_plain_float(*codes)) return false;
    const bool is_float8 = codes->packed.has_value();
    const auto& group = is_float8 ? group_with({"float-quantized", "naive-quantized"}, 8)
                                  : group_with({"int-quantized", "naive-quantized"}, 8);
    set_format(is_float8 ? "float-quantized" : "int-quantized", 8);
    matrix().codes = bytes(part(parameter_, "codes", {shape_}, {is_float8 ? "F8_E4M3" : "I8"}));
    set_compressed_scales(group);
    const std::string zero_points = module_ + ".weight_zero_point";
    if (is_float8 || (group.symmetric && !has(zero_points))) return true;
    const Shape& of_scales = files_.at(module_ + ".weight_scale").shape;
    matrix().zeros = ZeroPoints::int8;
    matrix().zero_codes = bytes(part(zero_points, "zero points", {of_scales}, {"I8"}));
    return true;
  }

  void open_packed_integers(const TensorEntry& packed) {
    // A row takes ceil(in * bits / 32) words.
    const int64_t words = packed.shape.rank() == 2 ? packed.shape[1] : 0;
    int bits = 0;
    for (const QuantizationConfig::Group& each : config_.groups)
      if (each.format == "pack-quantized" && ceil_div(in() * each.bits, 32) == words) bits = each.bits;
    if (bits == 0)
      refuse("{} has shape {}, which no group of config_groups makes of a weight {}", excerpt(packed.name),
             packed.shape, shape_);
    const auto& group = group_with({"pack-quantized"}, bits);
    set_format("pack-quantized", bits);
    matrix().codes = bytes(part(packed.name, "codes", {{out(), words}}, {"I32"}));
    if (has(module_ + ".weight_shape")) {
      const TensorEntry& entry = part(module_ + ".weight_shape", "shape", {{2}}, {"I64", "I32"});
      const auto raw = bytes(entry);
      int64_t both[2] = {};
      for (size_t i = 0; i < 2; ++i) std::memcpy(&both[i], raw.data() + i * raw.size() / 2, raw.size() / 2);
      if (both[0] != out() || both[1] != in())
        refuse("weight_shape is [{}, {}], config.json asks for {}", both[0], both[1], shape_);
    }
    set_compressed_scales(group);
    set_groups(module_ + ".weight_g_idx", ceil_div(in(), matrix().column_block));
    const std::string zero_points = module_ + ".weight_zero_point";
    if (group.symmetric && !has(zero_points)) return;
    if (matrix().row_block != 1) refuse("has zero points and one scale for all, which is not read");
    matrix().zeros = ZeroPoints::across;
    matrix().zero_codes = bytes(part(zero_points, "zero points",
                                     {{ceil_div(out() * bits, 32), ceil_div(in(), matrix().column_block)}}, {"I32"}));
  }

  void open_float4() {
    const bool is_mx = !has(module_ + ".weight_global_scale") &&
                       std::any_of(config_.groups.begin(), config_.groups.end(),
                                   [](const auto& each) { return each.format == "mxfp4-pack-quantized"; });
    set_format(is_mx ? "mxfp4-pack-quantized" : "nvfp4-pack-quantized", 4);
    matrix().column_block = matrix().format->block;
    matrix().codes = bytes(part(module_ + ".weight_packed", "codes", {{out(), ceil_div(in(), 2)}}, {"U8"}));
    const Shape of_scales{out(), ceil_div(in(), matrix().column_block)};
    if (is_mx) return set_scales(part(module_ + ".weight_scale", "scales", {of_scales}, {"U8", "F8_E8M0"}));
    set_scales(part(module_ + ".weight_scale", "scales", {of_scales}, {"F8_E4M3"}));
    const TensorEntry& global = part(module_ + ".weight_global_scale", "global scale", {{1}, {}}, {"F32"});
    std::memcpy(&matrix().factor, bytes(global).data(), sizeof(float));
  }

  bool open_fp8() {
    const TensorEntry* codes = files_.find(parameter_);
    if (codes == nullptr || is_plain_float(*codes)) return false;
    const bool is_fp4 = codes->dtype == DType::i8 && !codes->packed;  // experts of expert_dtype fp4
    set_format(is_fp4 ? "mxfp4-pack-quantized" : "float-quantized", is_fp4 ? 4 : 8);
    found_.format = is_fp4 ? "fp4" : config_.name;
    matrix().codes = bytes(is_fp4 ? part(parameter_, "codes", {{out(), ceil_div(in(), 2)}})
                                  : part(parameter_, "codes", {shape_}, {"F8_E4M3"}));
    std::string name;
    for (const char* suffix : {".weight_scale_inv", ".weight_scale", ".scale", ".qscale_weight"})
      if (name.empty() && has(module_ + suffix)) name = module_ + suffix;
    if (name.empty()) name = module_ + (config_.weight_block.empty() ? ".weight_scale" : ".weight_scale_inv");
    if (config_.weight_block.empty() && !is_fp4) {
      matrix().row_block = out(), matrix().column_block = in();
      set_scales(part(name, "scales", {{1}, {}, {1, 1}}, {"F32", "BF16", "F16"}));
      return true;
    }
    matrix().row_block = is_fp4 ? 1 : config_.weight_block[0];
    matrix().column_block = is_fp4 ? 32 : config_.weight_block[1];
    set_scales(part(name, "scales", {{ceil_div(out(), matrix().row_block), ceil_div(in(), matrix().column_block)}},
                    {"F32", "BF16", "F16", "F8_E8M0", "U8"}));
    return true;
  }

  /// gpt_oss: stacked experts. The parameter is [e, in, out], the file has [e, out, in / 32, 16].
  std::optional<Found> open_mxfp4() {
    if (!has(parameter_ + "_blocks")) return std::nullopt;
    if (shape_.rank() != 3) refuse("is {}, expected a stack of experts", shape_);
    const int64_t experts = shape_[0], in = shape_[1], out = shape_[2];
    if (in % 32 != 0) refuse("has {} inputs, MXFP4 keeps blocks of 32", in);
    set_format("mxfp4-pack-quantized", 4);
    found_.format = "mxfp4";
    found_.tensor.transposed = true;
    matrix().rows = experts * out, matrix().columns = in, matrix().column_block = 32;
    matrix().codes = bytes(part(parameter_ + "_blocks", "codes", {{experts, out, in / 32, 16}}, {"U8"}));
    set_scales(part(parameter_ + "_scales", "scales", {{experts, out, in / 32}}, {"U8", "F8_E8M0"}));
    return std::move(found_);
  }

  bool open_bitsandbytes() {
    for (const char* type : {"nf4", "fp4"})
      if (const std::string state = fmt::format("{}.quant_state.bitsandbytes__{}", parameter_, type); has(state)) {
        open_four_bits(type, state);
        return true;
      }
    const TensorEntry* codes = files_.find(parameter_);
    if (codes == nullptr || codes->dtype != DType::i8) return false;
    set_format("bnb-int8", 8);
    matrix().codes = bytes(part(parameter_, "codes", {shape_}));
    matrix().column_block = in();
    matrix().factor = 127;
    set_scales(part(module_ + ".SCB", "scales", {{out()}}, {"F32"}));
    if (has(module_ + ".weight_format")) {
      const auto format = bytes(part(module_ + ".weight_format", "format", {{}, {1}}, {"U8"}));
      if (format[0] != std::byte{0}) refuse("weight_format is {}; 0, rows, is read", std::to_integer<int>(format[0]));
    }
    return true;
  }

  void open_four_bits(const std::string& type, const std::string& state_name) {
    const auto raw = bytes(files_.at(state_name));
    found_.parts.push_back(state_name);
    const Json state = Json::parse(std::string(reinterpret_cast<const char*>(raw.data()), raw.size()), nullptr, false);
    const auto number = [&](const char* key, int64_t otherwise) {
      const Json value = state.is_object() ? state.value(key, Json(otherwise)) : Json();
      if (!value.is_number_integer() || value.get<int64_t>() <= 0 || value.get<int64_t>() > kMostOfBlock)
        refuse("{} is damaged: it has no {} of 1 to {}", excerpt(state_name), key, kMostOfBlock);
      return value.get<int64_t>();
    };
    set_format("bnb-" + type, 4);
    found_.format = "bnb-" + type;
    matrix().column_block = number("blocksize", 64);
    if (const Json shape = state.value("shape", Json()); !shape.is_null() && shape != Json({out(), in()}))
      refuse("{} says shape {}, config.json asks for {}", excerpt(state_name), excerpt(shape.dump()), shape_);
    const int64_t count = out() * in(), blocks = ceil_div(count, matrix().column_block);
    const TensorEntry& codes = files_.at(parameter_);
    found_.parts.push_back(parameter_);
    matrix().codes = bytes(codes);
    if (std::ssize(matrix().codes) < ceil_div(count, 2) || std::ssize(matrix().codes) > ceil_div(count, 2) + 7)
      refuse("{} has shape {}, which is not half a byte for each element of {}", excerpt(parameter_), codes.shape,
             shape_);
    read_floats(parameter_ + ".quant_map", "code table", 16, matrix().values.data());
    const std::string absmax = parameter_ + ".absmax";
    if (!state.contains("nested_offset")) return set_scales(part(absmax, "scales", {{blocks}}, {"F32"}));
    const double offset = state["nested_offset"].is_number() ? state["nested_offset"].get<double>() : INFINITY;
    if (!(std::abs(offset) <= std::numeric_limits<float>::max()))
      refuse("{} is damaged: nested_offset is no number of fp32", excerpt(state_name));
    matrix().nested_offset = static_cast<float>(offset);
    matrix().nested_block = number("nested_blocksize", 256);
    matrix().scales = {bytes(part(absmax, "scales", {{blocks}}, {"U8"})), PackedScales::Kind::u8};
    matrix().nested = bytes(
        part(parameter_ + ".nested_absmax", "scales of scales", {{ceil_div(blocks, matrix().nested_block)}}, {"F32"}));
    read_floats(parameter_ + ".nested_quant_map", "code table of scales", 256, matrix().nested_values.data());
  }

  void read_floats(const std::string& name, std::string_view what, int64_t count, float* values) {
    const auto raw = bytes(part(name, what, {{count}}, {"F32"}));
    std::memcpy(values, raw.data(), raw.size());
  }

  const WeightFiles& files_;
  const QuantizationConfig& config_;
  const std::string& parameter_;
  std::string module_;
  const Shape& shape_;
  Found found_;
};

std::optional<PackedWeights::Found> PackedWeights::find(const std::string& parameter, const Shape& shape) const {
  return Opener(*this, parameter, shape).open();
}

}  // namespace nought
