#include "nought/weights/receipt_export.h"

#include <algorithm>

#include <fmt/format.h>

#include "nought/checkpoint/checkpoint_folders.h"
#include "nought/checkpoint/export_record.h"
#include "nought/checkpoint/weight_hash.h"
#include "nought/weights/adapter_files.h"
#include "nought/weights/model_source.h"

namespace nought {

namespace fs = std::filesystem;

namespace {

ExportComparison compared(const std::string& hash, const std::string& expected, int64_t step) {
  return {.compared = true, .note = hash == expected ? "" : fmt::format("they are not those of step {}", step)};
}

/// The file has what the checkpoint of its step has: all that was trained, rounded.
ExportComparison compare_adapter(const fs::path& folder, int64_t step) {
  const fs::path checkpoint = checkpoint_path(folder, step);
  if (!is_checkpoint(checkpoint))
    return {.note = fmt::format("they are an adapter's, and there is no checkpoint of step {}", step)};
  const std::optional<fs::path> base = present_base_of_adapter(folder);
  if (!base) return {.note = "they are an adapter's, and the model that it was trained on is not there"};
  if (takes_of_the_base(read_adapter_config(checkpoint).start))
    return {.note = "an adapter's file with this init_lora_weights is the difference to what it began with"};
  const ModelSource source(FoundModel{.folder = *base, .adapters = {{folder}}});
  const ModelAdapter& adapter = source.config().adapter;
  const SafetensorsFile file(folder / kAdapterWeightsFile);
  const DType dtype = file.at(file.names().front()).dtype;
  const auto is_trained = [&](const Parameter& parameter) {
    return parameter.role == ParameterRole::adapter || adapter.saves(parameter.name);
  };
  return compared(hash_weights(source.weights(), source.model(), dtype, is_trained),
                  hash_weights(Checkpoint(checkpoint), dtype), step);
}

}  // namespace

ExportComparison compare_export(const Receipt& receipt, const fs::path& folder) {
  const std::optional<ExportRecord> record = read_export_record(folder);
  if (!record) return {.note = "the run has exported none"};
  const int64_t step = record->best ? record->best->step : record->step;
  if (holds_adapter(folder)) return compare_adapter(folder, step);
  const ModelSource source(FoundModel{.folder = folder});
  std::string expected;
  if (const fs::path checkpoint = checkpoint_path(folder, step); is_checkpoint(checkpoint)) {
    expected = hash_weights(Checkpoint(checkpoint), source.dtype());
  } else if (source.dtype() == DType::f32) {
    const auto& lines = receipt.lines();
    const auto line = std::find_if(lines.rbegin(), lines.rend(), [&](const auto& each) { return each.step() == step; });
    if (line != lines.rend()) expected = line->json.at("weights");
  }
  if (expected.empty()) return {.note = fmt::format("they are rounded, and there is no checkpoint of step {}", step)};
  return compared(hash_weights(source.weights(), source.model(), source.dtype()), expected, step);
}

}  // namespace nought
