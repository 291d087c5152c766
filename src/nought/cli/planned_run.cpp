#include "nought/cli/planned_run.h"

#include <filesystem>
#include <iterator>
#include <string_view>

#include "nought/base/json.h"
#include "nought/io/gguf_file.h"
#include "nought/models/config.h"

namespace nought {

namespace {

/// What a model alone does not say, where the user does not either.
constexpr std::string_view kAssumed[] = {"training.bf16=true", "training.per_device_train_batch_size=1"};

}  // namespace

RunConfig load_planned_run(const std::string& path, const std::vector<std::string>& overrides, bool on_gpu) {
  Json model;
  if (std::filesystem::is_directory(path) || is_gguf_path(path)) {
    model = path;
  } else if (const Json file = read_json_file(path); file.is_object() && file.contains("model_type")) {
    model = file;
  } else {
    return load_run_config(path, overrides, on_gpu);
  }
  std::vector<std::string> all(std::begin(kAssumed), std::end(kAssumed));
  all.insert(all.end(), overrides.begin(), overrides.end());
  Json run{{"model", model}};
  const ModelConfig config = model.is_string() ? ModelConfig::from_folder(path) : ModelConfig::from_json(model, path);
  if (config.classifier) run["alignment"] = {{"method", "classify"}};
  return make_run_config(run, path, all, {}, on_gpu);
}

}  // namespace nought
