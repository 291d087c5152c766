#include "nought/train/hf_folder.h"

#include <optional>
#include <unordered_set>

#include "nought/base/json.h"
#include "nought/data/tokenizer.h"
#include "nought/models/names.h"

namespace nought {

HfWeights::HfWeights(const std::filesystem::path& folder, const Model& model) : files_(folder) {
  std::unordered_set<std::string> used;
  for (const auto& unit : model.units())
    for (const Parameter& parameter : unit->parameters()) {
      const std::string other = alternative_name(parameter.name);
      const std::string& name =
          !files_.contains(parameter.name) && !other.empty() && files_.contains(other) ? other : parameter.name;
      const TensorEntry& entry = files_.at(name);
      const Shape& shape = parameter.placement.global;
      require<IoError>(entry.shape == shape, "{}: tensor {} has shape {}, config.json asks for {}",
                       files_.file_of(name).path().string(), name, entry.shape, shape);
      if (stored_name_.empty()) dtype_ = entry.dtype;
      stored_name_[parameter.name] = name;
      used.insert(name);
    }
  for (const TensorEntry& entry : files_.entries())
    if (!used.contains(entry.name) && !is_buffer_name(entry.name)) unused_.push_back(entry.name);
}

void HfWeights::fill(StateKind kind, const Parameter& parameter, std::span<const Interval> elements,
                     const Tensor& destination) const {
  if (kind != StateKind::master) {
    Stream here;
    return zero(destination, here);
  }
  const std::string& name = stored_name_.at(parameter.name);
  for_each_interval(elements, destination,
                    [&](Interval interval, const Tensor& values) { files_.read(name, interval, values); });
}

std::vector<TensorSpec> weight_specs(const Model& model, const std::function<DType(const Parameter&)>& dtype_of) {
  std::vector<TensorSpec> specs;
  for (const auto& unit : model.units())
    for (const Parameter& parameter : unit->parameters())
      specs.push_back({parameter.name, dtype_of(parameter), parameter.placement.global});
  return specs;
}

void export_beside_weights(const ModelConfig& config, DType dtype, const std::string& tokenizer,
                           const std::filesystem::path& folder) {
  write_text_atomically(folder / "config.json", config.to_hf_json(dtype).dump(2) + "\n");
  copy_tokenizer(tokenizer, folder);
}

void export_hf_folder(ShardedModel& model, const ModelConfig& config, const std::string& tokenizer,
                      const std::filesystem::path& folder, int64_t max_shard_bytes) {
  const DType dtype = model.options().dtype;
  std::optional<HfFolderWriter> writer;
  if (model.mesh().world().rank() == 0)
    writer.emplace(folder,
                   weight_specs(model.model(), [&](const Parameter& each) { return each.dtype.value_or(dtype); }),
                   max_shard_bytes);
  for (size_t i = 0; i < model.model().units().size(); ++i)
    model.with_parameters(i, [&](const Parameter& parameter, const Tensor& values) {
      if (writer) writer->write(parameter.name, model.context().on_host(values));
    });
  if (writer) {
    writer->finish();
    export_beside_weights(config, dtype, tokenizer, folder);
  }
  model.mesh().world().barrier().wait();  // when anyone returns, the folder is there
}

}  // namespace nought
