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

ExportComparison compare_export(const Receipt& receipt, const fs::path& folder) {
  const std::optional<ExportRecord> record = read_export_record(folder);
  if (!record) return {.note = "the run has exported none"};
  if (holds_adapter(folder)) return {.note = "they are an adapter's"};
  const ModelSource source(FoundModel{.folder = folder});
  const int64_t step = record->best ? record->best->step : record->step;
  std::string expected;
  if (const fs::path checkpoint = checkpoint_path(folder, step); is_checkpoint(checkpoint)) {
    expected = hash_weights(Checkpoint(checkpoint), source.dtype());
  } else if (source.dtype() == DType::f32) {
    const auto& lines = receipt.lines();
    const auto line = std::find_if(lines.rbegin(), lines.rend(), [&](const auto& each) { return each.step() == step; });
    if (line != lines.rend()) expected = line->json.at("weights");
  }
  if (expected.empty()) return {.note = fmt::format("they are rounded, and there is no checkpoint of step {}", step)};
  const bool same = hash_weights(source.weights(), source.model(), source.dtype()) == expected;
  return {.compared = true, .note = same ? "" : fmt::format("they are not those of step {}", step)};
}

}  // namespace nought
