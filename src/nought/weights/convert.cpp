#include "nought/weights/convert.h"

#include <algorithm>

#include "nought/base/json.h"
#include "nought/io/atomic_file.h"
#include "nought/io/gguf_file.h"
#include "nought/io/safetensors_writer.h"
#include "nought/text/tokenizer.h"
#include "nought/weights/gguf_tokenizer.h"

namespace nought {

namespace {

namespace fs = std::filesystem;

constexpr int64_t kBlockBytes = int64_t{16} << 20;

/// The dtype that most of the weights have: what config.json says of all.
DType dtype_of_most(const std::vector<TensorSpec>& specs) {
  std::map<DType, int64_t> elements;
  for (const TensorSpec& spec : specs) elements[spec.dtype] += spec.shape.numel();
  const auto most = std::max_element(elements.begin(), elements.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == elements.end() ? DType::f32 : most->first;
}

/// The tokenizer of a source, as make_tokenizer() takes it; "" if there is none.
std::string tokenizer_name(const ModelSource& source) {
  if (holds_tokenizer(source.folder())) return source.folder().string();
  return source.config().vocab_size == 256 ? "bytes" : "";
}

/// Puts parameters where the folder of their model has them.
class PlacingSink final : public WeightSink {
 public:
  PlacingSink(HfFolderWriter& writer, const CarriedTensors* carried) : writer_(writer), carried_(carried) {}
  void write(std::string_view name, Interval elements, const Tensor& source) override {
    if (!carried_) return writer_.write(name, elements, source);
    const StoredPlace place = carried_->place_of(std::string(name));
    writer_.write(place.tensor, {place.first + elements.begin, place.first + elements.end}, source);
  }
  void finish() override { writer_.finish(); }

 private:
  HfFolderWriter& writer_;
  const CarriedTensors* carried_;
};

}  // namespace

void copy_weights(const ModelSource& source, WeightSink& sink, Memory& memory,
                  const std::function<bool(const Parameter&)>& is_wanted) {
  // One buffer for all: blocks of their own sizes would each stay in the pool.
  const Tensor bytes = Tensor::empty(memory, {kBlockBytes}, DType::u8, Category::workspace);
  for (const auto& unit : source.model().units())
    for (const Parameter& parameter : unit->parameters()) {
      if (!is_wanted(parameter)) continue;
      // What is decoded goes on as it is: codes of the same format come out as they went in.
      const bool decoded = source.stored() != nullptr && source.stored()->decodes(parameter);
      const Tensor buffer = bytes.reinterpret(decoded ? DType::f32 : source.dtype_of(parameter));
      const int64_t numel = parameter.placement.global.numel();
      for (int64_t begin = 0; begin < numel; begin += buffer.numel()) {
        const Interval block{begin, std::min(numel, begin + buffer.numel())};
        const Tensor values = buffer.flat(0, block.size());
        source.weights().fill(StateKind::master, parameter, block, values);
        sink.write(parameter.name, block, values);
      }
    }
}

void export_companions_of(const ModelSource& source, DType dtype, const fs::path& folder,
                          const CarriedTensors* carried) {
  const std::string tokenizer = tokenizer_name(source);
  export_companions(source.config(), dtype, {tokenizer.empty() ? source.folder().string() : tokenizer}, folder,
                    carried);
}

ConvertReport convert_to_hf(const ModelSource& source, const fs::path& folder, const ConvertOptions& options,
                            Memory& memory) {
  std::error_code ignored;
  require<ConfigError>(!fs::equivalent(source.folder(), folder, ignored),
                       "{} is the folder that is read: give another one to write to", folder.string());
  std::vector<TensorSpec> specs = weight_specs(
      source.model(), [&](const Parameter& parameter) { return options.dtype.value_or(source.dtype_of(parameter)); });
  const DType most = dtype_of_most(specs);
  const CarriedTensors* carried = source.stored() ? source.stored()->carried() : nullptr;
  if (carried) carried->add_to(specs);
  HfFolderWriter writer(folder, specs, options.max_shard_bytes);
  PlacingSink placing(writer, carried);
  copy_weights(source, placing, memory);
  if (carried) carried->write(writer, memory);
  writer.finish();
  export_companions_of(source, most, folder, carried);
  ConvertReport report{.tensors = static_cast<int64_t>(specs.size()), .files = writer.num_shards()};
  for (const TensorSpec& spec : specs) report.bytes += spec.bytes();
  if (carried) report.notes.push_back(carried->describe() + " are carried through as they are");
  return report;
}

ConvertReport convert_to_adapter(const ModelSource& source, const fs::path& folder, Memory& memory) {
  const std::vector<AdapterUse>& adapters = source.adapters();
  require<ConfigError>(adapters.size() == 1 && adapters[0].scale == 1,
                       "several adapters, or one with a scale, are no adapter's folder: --merge writes the model with "
                       "them");
  AdapterConfig config = read_adapter_config(adapters[0].folder);
  config.base = fs::absolute(source.folder()).lexically_normal().string();
  const ModelAdapter& adapter = source.config().adapter;
  const std::vector<TensorSpec> specs = adapter_specs(source.model(), adapter, DType::f32);
  ConvertReport report{.tensors = std::ssize(specs), .files = 1};
  for (const TensorSpec& spec : specs) report.bytes += spec.bytes();
  fs::create_directories(folder);
  SafetensorsWriter writer(folder / kAdapterWeightsFile, specs);
  for (const auto& unit : source.model().units())
    for (const Parameter& parameter : unit->parameters()) {
      const bool is_table = parameter.role == ParameterRole::embedding;
      if (!parameter.trainable && !is_table) continue;
      const Tensor values = Tensor::empty(memory, parameter.placement.global, DType::f32, Category::workspace);
      source.weights().fill(StateKind::master, parameter, Interval{0, values.numel()}, values);
      write_adapter_tensor(parameter, values, adapter, writer, memory);
    }
  writer.finish();
  write_text_atomically(folder / kAdapterConfigFile, config.to_json().dump(2) + "\n");
  return report;
}

ConvertReport convert_to_gguf(const ModelSource& source, const fs::path& file, const GgufMixture& types,
                              Memory& memory) {
  source.config().require_language_model(source.folder().string());
  ConvertReport report{.files = 1};
  const GgufMetadata tokenizer = gguf_tokenizer(tokenizer_name(source), source.config(), report.notes);
  const fs::path path = fs::absolute(source.folder()).lexically_normal();
  const fs::path last = (path.has_filename() ? path : path.parent_path()).filename();
  const std::string name = gguf_name((is_gguf_path(last) ? last.stem() : last).string(), tokenizer, report.notes);
  GgufModelWriter writer(file, source.model(), types, name, tokenizer);
  copy_weights(source, writer, memory);
  writer.finish();
  report.notes.insert(report.notes.end(), writer.notes().begin(), writer.notes().end());
  if (const CarriedTensors* carried = source.stored() ? source.stored()->carried() : nullptr)
    report.notes.push_back(carried->describe() + " are left out: the file has the text model alone");
  report.tensors = static_cast<int64_t>(writer.tensors().size());
  for (const GgufTensor& tensor : writer.tensors()) report.bytes += tensor.bytes();
  return report;
}

}  // namespace nought
