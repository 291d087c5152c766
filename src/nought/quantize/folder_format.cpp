#include "nought/quantize/folder_format.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "nought/quantize/compressed_formats.h"
#include "nought/quantize/float_formats.h"
#include "nought/quantize/format_values.h"
#include "nought/quantize/word_packing.h"

namespace nought {

namespace {

std::vector<int32_t> as_signed(const std::vector<uint32_t>& words) { return {words.begin(), words.end()}; }

/// GPTQ's first version: words of neighbours along a row's columns, the words of all rows side by side.
class GptqFormat final : public FolderFormat {
 public:
  void check(const MatrixRule& rule) const override {
    require<ConfigError>(rule.grid.bits == 2 || rule.grid.bits == 3 || rule.grid.bits == 4 || rule.grid.bits == 8,
                         "--format gptq has 2, 3, 4 or 8 bits, got {}", rule.grid.bits);
  }
  bool takes(const Shape& shape, const MatrixRule& rule) const override {
    return shape[1] * rule.grid.bits % 32 == 0 && shape[0] * rule.grid.bits % 32 == 0;
  }
  std::vector<TensorSpec> specs(const std::string& module, const Shape& shape, const MatrixRule& rule) const override {
    const int64_t rows = shape[0], columns = shape[1];
    const int64_t groups = ceil_div(columns, rule.group_of(columns));
    return {{module + ".qweight", DType::i32, {columns * rule.grid.bits / 32, rows}},
            {module + ".qzeros", DType::i32, {groups, rows * rule.grid.bits / 32}},
            {module + ".scales", DType::f16, {groups, rows}},
            {module + ".g_idx", DType::i32, {columns}}};
  }
  void write(const std::string& module, const QuantizedMatrix& matrix, SafetensorsWriter& writer,
             Memory& memory) const override {
    const int64_t words = matrix.columns * matrix.rule.bits / 32, groups = matrix.groups();
    std::vector<int32_t> codes(static_cast<size_t>(words * matrix.rows));
    for (int64_t row = 0; row < matrix.rows; ++row) {
      const std::vector<uint32_t> column =
          packed_stream(matrix.columns, matrix.rule.bits, [&](int64_t i) { return matrix.code(row, i); });
      for (int64_t word = 0; word < words; ++word)
        codes[static_cast<size_t>(word * matrix.rows + row)] = static_cast<int32_t>(column[static_cast<size_t>(word)]);
    }
    write_values(writer, memory, module + ".qweight", {words, matrix.rows}, codes);
    std::vector<int32_t> zeros;
    for (int64_t group = 0; group < groups; ++group)
      for (const int32_t word : zeros_of(matrix, group)) zeros.push_back(word);
    write_values(writer, memory, module + ".qzeros", {groups, std::ssize(zeros) / groups}, zeros);
    write_values(writer, memory, module + ".scales", {groups, matrix.rows}, scales_of(matrix, /*by_group=*/true));
    write_values(writer, memory, module + ".g_idx", {matrix.columns}, matrix.group_of);
  }
  OrderedJson config(const MatrixRule& rule, const FolderModules& modules) const override {
    OrderedJson json{{"quant_method", "gptq"},      {"bits", rule.grid.bits},     {"group_size", rule.group_size},
                     {"desc_act", rule.act_order},  {"sym", rule.grid.symmetric}, {"lm_head", false},
                     {"checkpoint_format", "gptq"}, {"pack_dtype", "int32"},      {"true_sequential", true},
                     {"damp_percent", rule.damping}};
    if (modules.dense.empty()) return json;
    for (const std::string& module : modules.dense) json["dynamic"]["-:" + pattern_of(module)] = OrderedJson::object();
    for (const std::string& kind : modules.codes)  // optimum reads this alone
      json["modules_in_block_to_quantize"].push_back(OrderedJson::array({kind}));
    return json;
  }

 private:
  /// A regular expression that means the module alone.
  static std::string pattern_of(const std::string& module) {
    std::string pattern = "^";
    for (const char c : module) pattern += c == '.' ? "\\." : std::string(1, c);
    return pattern + "$";
  }
  /// The zero points less one: from whole words, with carries between their codes, unless codes straddle words.
  static std::vector<int32_t> zeros_of(const QuantizedMatrix& matrix, int64_t group) {
    const auto zero = [&](int64_t row) { return matrix.zeros[static_cast<size_t>(row * matrix.groups() + group)]; };
    if (matrix.rule.bits == 3)
      return as_signed(packed_stream(matrix.rows, 3, [&](int64_t i) { return (zero(i) - 1) & 7; }));
    std::vector<uint32_t> words = packed_stream(matrix.rows, matrix.rule.bits, zero);
    uint32_t ones = 0;
    for (int bit = 0; bit < 32; bit += matrix.rule.bits) ones |= uint32_t{1} << bit;
    for (uint32_t& word : words) word -= ones;
    return as_signed(words);
  }
};

/// AWQ's version gemm: words of eight rows in an order of their own.
class AwqFormat final : public FolderFormat {
 public:
  MatrixRule usual() const override { return {.grid = {.symmetric = false}}; }
  void check(const MatrixRule& rule) const override {
    require<ConfigError>(rule.grid.bits == 4, "--format awq has 4 bits, got {}", rule.grid.bits);
    require_plain_order(rule, "awq");
  }
  bool takes(const Shape& shape, const MatrixRule& rule) const override {
    return shape[0] % kRows == 0 && shape[1] % rule.group_of(shape[1]) == 0;
  }
  std::vector<TensorSpec> specs(const std::string& module, const Shape& shape, const MatrixRule& rule) const override {
    const int64_t rows = shape[0], columns = shape[1];
    const int64_t groups = columns / rule.group_of(columns);
    return {{module + ".qweight", DType::i32, {columns, rows / kRows}},
            {module + ".qzeros", DType::i32, {groups, rows / kRows}},
            {module + ".scales", DType::f16, {groups, rows}}};
  }
  void write(const std::string& module, const QuantizedMatrix& matrix, SafetensorsWriter& writer,
             Memory& memory) const override {
    const int64_t groups = matrix.groups(), words = matrix.rows / kRows;
    write_values(
        writer, memory, module + ".qweight", {matrix.columns, words},
        words_of(matrix.columns, words, [&](int64_t row, int64_t column) { return matrix.code(row, column); }));
    write_values(writer, memory, module + ".qzeros", {groups, words},
                 words_of(groups, words, [&](int64_t row, int64_t group) {
                   return matrix.zeros[static_cast<size_t>(row * groups + group)];
                 }));
    write_values(writer, memory, module + ".scales", {groups, matrix.rows}, scales_of(matrix, /*by_group=*/true));
  }
  OrderedJson config(const MatrixRule& rule, const FolderModules& modules) const override {
    return {{"quant_method", "awq"},
            {"version", "gemm"},
            {"bits", rule.grid.bits},
            {"group_size", rule.group_size},
            {"zero_point", true},
            {"modules_to_not_convert", modules.dense.empty() ? OrderedJson(nullptr) : OrderedJson(modules.dense)}};
  }

 private:
  static constexpr int64_t kRows = 8;  // in a word
  template <class CodeAt>
  static std::vector<int32_t> words_of(int64_t lines, int64_t words, const CodeAt& code_at) {
    constexpr std::array<int, kRows> kOrder{0, 2, 4, 6, 1, 3, 5, 7};
    std::vector<int32_t> result;
    result.reserve(static_cast<size_t>(lines * words));
    for (int64_t line = 0; line < lines; ++line)
      for (int64_t word = 0; word < words; ++word) {
        uint32_t packed = 0;
        for (size_t i = 0; i < kOrder.size(); ++i)
          packed |= static_cast<uint32_t>(code_at(word * kRows + kOrder[i], line)) << (4 * i);
        result.push_back(static_cast<int32_t>(packed));
      }
    return result;
  }
};

}  // namespace

const std::vector<std::string>& folder_format_names() {
  static const std::vector<std::string> names{"gptq", "awq", "compressed-tensors", "int8", "fp8", "mxfp4"};
  return names;
}

std::vector<std::string> FolderModules::left_dense() const {
  std::vector<std::string> all = dense;
  all.insert(all.end(), routers.begin(), routers.end());
  all.emplace_back("lm_head");
  return all;
}

void require_plain_order(const MatrixRule& rule, std::string_view format) {
  require<ConfigError>(!rule.act_order, "--format {} has no place for --desc-act: gptq has", format);
}

bool FolderFormat::wants(const Parameter& parameter) const { return is_linear_matrix(parameter); }

std::unique_ptr<FolderFormat> make_folder_format(std::string_view name, std::string_view family) {
  if (name == "gptq") return std::make_unique<GptqFormat>();
  if (name == "awq") return std::make_unique<AwqFormat>();
  if (auto compressed = make_compressed_format(name)) return compressed;
  if (auto of_floats = make_float_format(name, family)) return of_floats;
  fail<ConfigError>("--format must be one of {}; got {}", fmt::join(folder_format_names(), ", "), name);
}

}  // namespace nought
