#include "nought/quantize/compressed_formats.h"

#include "nought/quantize/format_values.h"
#include "nought/quantize/word_packing.h"

namespace nought {

namespace {

/// The format pack-quantized of compressed-tensors: a stream of codes for each row.
class PackQuantized final : public FolderFormat {
 public:
  void check(const MatrixRule& rule) const override { require_plain_order(rule, "compressed-tensors"); }
  bool takes(const Shape& shape, const MatrixRule& rule) const override {
    return shape[1] % rule.group_of(shape[1]) == 0;
  }
  std::vector<TensorSpec> specs(const std::string& module, const Shape& shape, const MatrixRule& rule) const override {
    const int64_t rows = shape[0], columns = shape[1];
    const int64_t groups = columns / rule.group_of(columns), bits = rule.grid.bits;
    std::vector<TensorSpec> specs{{module + ".weight_packed", DType::i32, {rows, ceil_div(columns * bits, 32)}},
                                  {module + ".weight_scale", DType::f16, {rows, groups}},
                                  {module + ".weight_shape", DType::i64, {2}}};
    if (!rule.grid.symmetric)
      specs.push_back({module + ".weight_zero_point", DType::i32, {ceil_div(rows * bits, 32), groups}});
    return specs;
  }
  void write(const std::string& module, const QuantizedMatrix& matrix, SafetensorsWriter& writer,
             Memory& memory) const override {
    const int64_t groups = matrix.groups();
    std::vector<int32_t> codes;
    for (int64_t row = 0; row < matrix.rows; ++row)
      for (const uint32_t word :
           packed_stream(matrix.columns, matrix.rule.bits, [&](int64_t i) { return matrix.code(row, i); }))
        codes.push_back(static_cast<int32_t>(word));
    write_values(writer, memory, module + ".weight_packed", {matrix.rows, std::ssize(codes) / matrix.rows}, codes);
    write_values(writer, memory, module + ".weight_scale", {matrix.rows, groups},
                 scales_of(matrix, /*by_group=*/false));
    write_values(writer, memory, module + ".weight_shape", {2}, std::vector<int64_t>{matrix.rows, matrix.columns});
    if (matrix.rule.symmetric) return;
    const int64_t words = ceil_div(matrix.rows * matrix.rule.bits, 32);
    std::vector<int32_t> zeros(static_cast<size_t>(words * groups));
    for (int64_t group = 0; group < groups; ++group) {
      const std::vector<uint32_t> stream = packed_stream(matrix.rows, matrix.rule.bits, [&](int64_t row) {
        return matrix.zeros[static_cast<size_t>(row * groups + group)];
      });
      for (int64_t word = 0; word < words; ++word)
        zeros[static_cast<size_t>(word * groups + group)] = static_cast<int32_t>(stream[static_cast<size_t>(word)]);
    }
    write_values(writer, memory, module + ".weight_zero_point", {words, groups}, zeros);
  }
  OrderedJson config(const MatrixRule& rule, const FolderModules& modules) const override {
    const bool whole = rule.group_size == -1;
    const OrderedJson weights{{"num_bits", rule.grid.bits},
                              {"type", "int"},
                              {"symmetric", rule.grid.symmetric},
                              {"strategy", whole ? "channel" : "group"},
                              {"group_size", whole ? OrderedJson(nullptr) : OrderedJson(rule.group_size)},
                              {"dynamic", false},
                              {"observer", "minmax"}};
    return compressed_config("pack-quantized", weights, nullptr, modules);
  }
};

class IntQuantized final : public FolderFormat {
 public:
  MatrixRule usual() const override { return {.grid = {.bits = 8}, .group_size = -1}; }
  void check(const MatrixRule& rule) const override {
    require<ConfigError>(rule.grid.bits == 8, "--format int8 has 8 bits, got {}", rule.grid.bits);
    require<ConfigError>(rule.grid.symmetric, "--format int8 has no zero points: leave out --asym");
    require<ConfigError>(rule.group_size == -1, "--format int8 has a scale for each row, got --group-size {}",
                         rule.group_size);
    require_plain_order(rule, "int8");
  }
  bool takes(const Shape& /*shape*/, const MatrixRule& /*rule*/) const override { return true; }
  std::vector<TensorSpec> specs(const std::string& module, const Shape& shape,
                                const MatrixRule& /*rule*/) const override {
    return {{module + ".weight", DType::i8, shape}, {module + ".weight_scale", DType::f32, {shape[0], 1}}};
  }
  void write(const std::string& module, const QuantizedMatrix& matrix, SafetensorsWriter& writer,
             Memory& memory) const override {
    std::vector<int8_t> codes;
    codes.reserve(matrix.codes.size());
    for (const uint8_t code : matrix.codes) codes.push_back(static_cast<int8_t>(code - 128));
    write_values(writer, memory, module + ".weight", {matrix.rows, matrix.columns}, codes);
    write_values(writer, memory, module + ".weight_scale", {matrix.rows, 1}, matrix.scales);
  }
  OrderedJson config(const MatrixRule& /*rule*/, const FolderModules& modules) const override {
    const auto numbers = [](const char* strategy, bool dynamic) {
      return OrderedJson{{"num_bits", 8},        {"type", "int"},         {"symmetric", true},
                         {"strategy", strategy}, {"group_size", nullptr}, {"dynamic", dynamic}};
    };
    return compressed_config("int-quantized", numbers("channel", false), numbers("token", true), modules);
  }
};

}  // namespace

OrderedJson compressed_config(std::string_view format, const OrderedJson& weights, const OrderedJson& inputs,
                              const FolderModules& modules) {
  const OrderedJson group{{"targets", {"Linear"}},
                          {"weights", weights},
                          {"input_activations", inputs},
                          {"output_activations", nullptr},
                          {"format", format}};
  return {{"quant_method", "compressed-tensors"}, {"format", format},
          {"quantization_status", "compressed"},  {"config_groups", {{"group_0", group}}},
          {"ignore", modules.left_dense()},       {"kv_cache_scheme", nullptr},
          {"global_compression_ratio", nullptr}};
}

std::unique_ptr<FolderFormat> make_compressed_format(std::string_view name) {
  if (name == "compressed-tensors") return std::make_unique<PackQuantized>();
  if (name == "int8") return std::make_unique<IntQuantized>();
  return nullptr;
}

}  // namespace nought
