#include "nought/weights/four_bit_folder.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "nought/base/json.h"
#include "nought/io/atomic_file.h"
#include "nought/io/files.h"
#include "nought/kernels/four_bits.h"
#include "nought/zero/four_bits.h"

namespace nought {

namespace {

namespace fs = std::filesystem;

/// Elements that are read at a time: whole blocks.
constexpr int64_t kReadAtOnce = int64_t{1} << 20;

bool becomes_codes(const Parameter& parameter) {
  return parameter.role == ParameterRole::matrix && parameter.placement.global.rank() == 2;
}

/// One matrix on its way to a folder.
class FourBitMatrix {
 public:
  FourBitMatrix(const ModelSource& source, const Parameter& parameter, CodeKind kind, DType dtype, Memory& memory)
      : source_(source), parameter_(parameter), kind_(kind), dtype_(dtype), memory_(memory) {
    if (source.stored() != nullptr) stored_ = source.stored()->four_bits(parameter);
    if (stored_ && (stored_->kind != kind || stored_->nested.empty())) stored_.reset();
    if (stored_) {  // goes on as it is
      nested_ = stored_->nested_scales();
      return;
    }
    std::vector<float> scales;
    for_each_stretch([&](Interval, const std::vector<uint8_t>&, const std::vector<float>& more) {
      scales.insert(scales.end(), more.begin(), more.end());
    });
    nested_ = nest_scales(scales);
  }

  std::vector<TensorSpec> specs() const {
    const std::string& name = parameter_.name;
    return {{name, DType::u8, {ceil_div(numel(), 2), 1}},
            {name + ".absmax", DType::u8, {std::ssize(nested_.codes)}},
            {name + ".nested_absmax", DType::f32, {std::ssize(nested_.scales)}},
            {name + ".nested_quant_map", DType::f32, {std::ssize(nested_values())}},
            {name + ".quant_map", DType::f32, {std::ssize(four_bit_values(kind_))}},
            {state_name(), DType::u8, {std::ssize(state())}}};
  }

  void write(HfFolderWriter& writer) const {
    const std::string& name = parameter_.name;
    if (stored_) {
      writer.write(name, Interval{0, std::ssize(stored_->codes)}, tensor_of(bytes_of(stored_->codes)));
    } else {
      for_each_stretch([&](Interval elements, const std::vector<uint8_t>& codes, const std::vector<float>&) {
        writer.write(name, Interval{elements.begin / 2, elements.begin / 2 + std::ssize(codes)},
                     tensor_of(std::span<const uint8_t>(codes)));
      });
    }
    writer.write(name + ".absmax", tensor_of(std::span<const uint8_t>(nested_.codes)));
    writer.write(name + ".nested_absmax", tensor_of(std::span<const float>(nested_.scales)));
    writer.write(name + ".nested_quant_map", tensor_of(std::span<const float>(nested_values())));
    writer.write(name + ".quant_map", tensor_of(std::span<const float>(four_bit_values(kind_))));
    const std::string text = state();
    writer.write(state_name(), tensor_of(bytes_of(std::as_bytes(std::span(text)))));
  }

 private:
  static std::span<const uint8_t> bytes_of(std::span<const std::byte> raw) {
    return {reinterpret_cast<const uint8_t*>(raw.data()), raw.size()};
  }
  int64_t numel() const { return parameter_.placement.global.numel(); }
  std::string state_name() const {
    return fmt::format("{}.quant_state.bitsandbytes__{}", parameter_.name, name_of(kind_));
  }
  /// As Python writes it.
  std::string state() const {
    const Shape& shape = parameter_.placement.global;
    return fmt::format(
        R"({{"quant_type": "{}", "blocksize": {}, "dtype": "{}", "shape": [{}, {}], "nested_blocksize": {}, )"
        R"("nested_dtype": "float32", "nested_offset": {}}})",
        name_of(kind_), kFourBitBlock, torch_name(dtype_), shape[0], shape[1], kNestedBlock,
        static_cast<double>(nested_.offset));
  }

  template <class T>
  Tensor tensor_of(std::span<const T> values) const {
    Tensor x = Tensor::empty(memory_, {std::ssize(values)}, dtype_of_v<T>, Category::workspace);
    std::copy(values.begin(), values.end(), x.data<T>());
    return x;
  }

  /// Calls f(elements, their codes, their scales).
  template <class F>
  void for_each_stretch(const F& f) const {
    for (int64_t begin = 0; begin < numel(); begin += kReadAtOnce) {
      const Interval elements{begin, std::min(numel(), begin + kReadAtOnce)};
      std::vector<uint8_t> codes(static_cast<size_t>(ceil_div(elements.size(), 2)));
      std::vector<float> scales;
      for_each_block(source_.weights(), parameter_, elements, memory_,
                     [&](Interval block, std::span<const float> values) {
                       scales.push_back(quantize_four_bits(kind_, values, codes.data() + (block.begin - begin) / 2));
                     });
      f(elements, codes, scales);
    }
  }

  const ModelSource& source_;
  const Parameter& parameter_;
  const CodeKind kind_;
  const DType dtype_;
  Memory& memory_;
  NestedScales nested_;
  std::optional<StoredFourBits> stored_;
};

/// What config.json says of the codes.
OrderedJson quantization_config(CodeKind kind, DType dtype) {
  return {{"quant_method", "bitsandbytes"},
          {"_load_in_4bit", true},
          {"_load_in_8bit", false},
          {"load_in_4bit", true},
          {"load_in_8bit", false},
          {"bnb_4bit_compute_dtype", torch_name(dtype)},
          {"bnb_4bit_quant_storage", "uint8"},
          {"bnb_4bit_quant_type", name_of(kind)},
          {"bnb_4bit_use_double_quant", true},
          {"llm_int8_enable_fp32_cpu_offload", false},
          {"llm_int8_has_fp16_weight", false},
          {"llm_int8_skip_modules", nullptr},
          {"llm_int8_threshold", 6.0}};
}

}  // namespace

ConvertReport convert_to_four_bits(const ModelSource& source, const fs::path& folder, CodeKind kind,
                                   const ConvertOptions& options, Memory& memory) {
  require<ConfigError>(source.config().weight_layout == WeightLayout::out_in,
                       "{} models are not written in 4 bits: their matrices are [in, out]", source.config().family);
  std::error_code ignored;
  require<ConfigError>(!fs::equivalent(source.folder(), folder, ignored),
                       "{} is the folder that is read: give another one to write to", folder.string());
  std::vector<TensorSpec> specs;
  std::map<std::string, FourBitMatrix> matrices;
  DType most = DType::f32;
  for (const auto& unit : source.model().units())
    for (const Parameter& parameter : unit->parameters()) {
      const DType dtype = options.dtype.value_or(source.dtype_of(parameter));
      if (becomes_codes(parameter)) {
        most = dtype;
        const auto added = matrices.try_emplace(parameter.name, source, parameter, kind, dtype, memory).first;
        const std::vector<TensorSpec> more = added->second.specs();
        specs.insert(specs.end(), more.begin(), more.end());
      } else {
        specs.push_back({parameter.name, dtype, parameter.placement.global});
      }
    }
  HfFolderWriter writer(folder, specs, options.max_shard_bytes);
  copy_weights(source, writer, memory, [&](const Parameter& parameter) { return !becomes_codes(parameter); });
  for (const auto& [name, matrix] : matrices) matrix.write(writer);
  writer.finish();
  export_companions_of(source, most, folder);
  OrderedJson config = OrderedJson::parse(read_bytes(folder / "config.json"));
  config["quantization_config"] = quantization_config(kind, most);
  write_text_atomically(folder / "config.json", config.dump(2) + "\n");
  ConvertReport report{.tensors = std::ssize(specs), .files = writer.num_shards()};
  for (const TensorSpec& spec : specs) report.bytes += spec.bytes();
  if (const CarriedTensors* carried = source.stored() ? source.stored()->carried() : nullptr)
    report.notes.push_back(carried->describe() + " are left out: the folder has the text model alone");
  return report;
}

}  // namespace nought
