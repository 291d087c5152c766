#include "nought/quantize/float_formats.h"

#include <cmath>

#include "nought/quantize/compressed_formats.h"
#include "nought/quantize/format_values.h"

namespace nought {

namespace {

constexpr int64_t kMxGroup = 32;

void write_bytes(SafetensorsWriter& writer, Memory& memory, const std::string& name,
                 const std::vector<uint8_t>& bytes) {
  const int64_t count = std::ssize(bytes);
  writer.write(name, Interval{0, count}, Tensor::of<uint8_t>(memory, {count}, bytes, Category::workspace));
}

/// Codes are floats of their own scales: there is nothing to choose about them.
void require_plain(const MatrixRule& rule, std::string_view format, int bits) {
  require<ConfigError>(rule.grid.bits == bits, "--format {} has {} bits, got {}", format, bits, rule.grid.bits);
  require<ConfigError>(rule.grid.symmetric, "--format {} has no zero points: leave out --asym", format);
  require_plain_order(rule, format);
}

class Fp8Squares final : public FolderFormat {
 public:
  MatrixRule usual() const override { return {.grid = {.bits = 8, .codes = CodeTable::e4m3}, .square = true}; }
  void check(const MatrixRule& rule) const override {
    require_plain(rule, "fp8", 8);
    require<ConfigError>(rule.group_size > 0,
                         "--format fp8 has a scale for each square: --group-size is {}, expected "
                         "its side",
                         rule.group_size);
  }
  bool takes(const Shape& /*shape*/, const MatrixRule& /*rule*/) const override { return true; }
  std::vector<TensorSpec> specs(const std::string& module, const Shape& shape, const MatrixRule& rule) const override {
    const int64_t side = rule.group_size;
    return {{module + ".weight", DType::u8, shape, Float8::e4m3},
            {module + ".weight_scale_inv", DType::f32, {ceil_div(shape[0], side), ceil_div(shape[1], side)}}};
  }
  void write(const std::string& module, const QuantizedMatrix& matrix, SafetensorsWriter& writer,
             Memory& memory) const override {
    write_bytes(writer, memory, module + ".weight", matrix.codes);
    std::vector<float> scales;
    for (int64_t row = 0; row < matrix.rows; row += matrix.group_size)
      for (int64_t group = 0; group < matrix.groups(); ++group) scales.push_back(matrix.grid(row, group).scale);
    write_values(writer, memory, module + ".weight_scale_inv", {std::ssize(scales) / matrix.groups(), matrix.groups()},
                 scales);
  }
  OrderedJson config(const MatrixRule& rule, const FolderModules& modules) const override {
    return {{"quant_method", "fp8"},
            {"fmt", "e4m3"},
            {"activation_scheme", "dynamic"},
            {"weight_block_size", {rule.group_size, rule.group_size}},
            {"modules_to_not_convert", modules.left_dense()}};
  }
};

/// What both kinds of MXFP4 have: two codes in a byte, the first one low, and exponents of E8M0.
class Mxfp4Format : public FolderFormat {
 public:
  MatrixRule usual() const override { return {.grid = {.bits = 4, .codes = CodeTable::e2m1}, .group_size = kMxGroup}; }
  void check(const MatrixRule& rule) const override {
    require_plain(rule, "mxfp4", 4);
    require<ConfigError>(rule.group_size == kMxGroup, "--format mxfp4 has groups of {}, got --group-size {}", kMxGroup,
                         rule.group_size);
  }

 protected:
  static void write_parts(const std::string& codes, const std::string& scales, const QuantizedMatrix& matrix,
                          SafetensorsWriter& writer, Memory& memory) {
    std::vector<uint8_t> pairs, exponents;
    pairs.reserve(matrix.codes.size() / 2);
    for (size_t i = 0; i < matrix.codes.size(); i += 2)
      pairs.push_back(static_cast<uint8_t>(matrix.codes[i] | matrix.codes[i + 1] << 4));
    for (const float scale : matrix.scales) exponents.push_back(static_cast<uint8_t>(std::ilogb(scale) + 127));
    write_bytes(writer, memory, codes, pairs);
    write_bytes(writer, memory, scales, exponents);
  }
};

class Mxfp4Matrices final : public Mxfp4Format {
 public:
  bool takes(const Shape& shape, const MatrixRule& /*rule*/) const override { return shape[1] % kMxGroup == 0; }
  std::vector<TensorSpec> specs(const std::string& module, const Shape& shape,
                                const MatrixRule& /*rule*/) const override {
    return {{module + ".weight_packed", DType::u8, {shape[0], shape[1] / 2}},
            {module + ".weight_scale", DType::u8, {shape[0], shape[1] / kMxGroup}}};
  }
  void write(const std::string& module, const QuantizedMatrix& matrix, SafetensorsWriter& writer,
             Memory& memory) const override {
    write_parts(module + ".weight_packed", module + ".weight_scale", matrix, writer, memory);
  }
  OrderedJson config(const MatrixRule& /*rule*/, const FolderModules& modules) const override {
    const OrderedJson weights{{"num_bits", 4},
                              {"type", "float"},
                              {"symmetric", true},
                              {"strategy", "group"},
                              {"group_size", kMxGroup},
                              {"dynamic", false},
                              {"scale_dtype", "torch.uint8"},
                              {"zp_dtype", "torch.uint8"}};
    return compressed_config("mxfp4-pack-quantized", weights, nullptr, modules);
  }
};

/// gpt_oss: stacks of experts [experts, in, out], whose codes lie in rows of inputs.
class Mxfp4Stacks final : public Mxfp4Format {
 public:
  bool wants(const Parameter& parameter) const override {
    return parameter.role == ParameterRole::expert && parameter.placement.global.rank() == 3;
  }
  bool takes(const Shape& shape, const MatrixRule& /*rule*/) const override { return shape[1] % kMxGroup == 0; }
  std::vector<TensorSpec> specs(const std::string& module, const Shape& shape,
                                const MatrixRule& /*rule*/) const override {
    const int64_t groups = shape[1] / kMxGroup;
    return {{module + "_blocks", DType::u8, {shape[0], shape[2], groups, kMxGroup / 2}},
            {module + "_scales", DType::u8, {shape[0], shape[2], groups}}};
  }
  void write(const std::string& module, const QuantizedMatrix& matrix, SafetensorsWriter& writer,
             Memory& memory) const override {
    write_parts(module + "_blocks", module + "_scales", matrix, writer, memory);
  }
  OrderedJson config(const MatrixRule& /*rule*/, const FolderModules& modules) const override {
    std::vector<std::string> dense{"model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens",
                                   "lm_head"};
    dense.insert(dense.end(), modules.dense.begin(), modules.dense.end());
    return {{"quant_method", "mxfp4"}, {"modules_to_not_convert", dense}};
  }
};

}  // namespace

std::unique_ptr<FolderFormat> make_float_format(std::string_view name, std::string_view family) {
  if (name == "fp8") return std::make_unique<Fp8Squares>();
  if (name != "mxfp4") return nullptr;
  if (family == "gpt_oss") return std::make_unique<Mxfp4Stacks>();
  return std::make_unique<Mxfp4Matrices>();
}

}  // namespace nought
