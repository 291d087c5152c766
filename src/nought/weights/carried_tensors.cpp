#include "nought/weights/carried_tensors.h"

#include <set>

#include <fmt/format.h>

namespace nought {

StoredPlace CarriedTensors::place_of(const std::string& parameter) const {
  const auto found = stored_.find(parameter);
  return found == stored_.end() ? StoredPlace{parameter} : found->second;
}

void CarriedTensors::add_to(std::vector<TensorSpec>& specs) const {
  std::set<std::string> shared;  // by several parameters
  std::erase_if(specs, [&](TensorSpec& spec) {
    spec.name = place_of(spec.name).tensor;
    const TensorEntry* entry = files_.find(spec.name);
    if (!entry || entry->shape.numel() == spec.shape.numel()) return false;
    spec.shape = entry->shape;
    return !shared.insert(spec.name).second;
  });
  for (const std::string& name : names_) {
    const TensorEntry& entry = files_.at(name);
    specs.push_back({name, entry.dtype, entry.shape});
  }
}

void CarriedTensors::write(HfFolderWriter& writer, Memory& memory) const {
  for (const std::string& name : names_) writer.write(name, files_.load(name, memory, Category::workspace));
}

void CarriedTensors::copy_companions(const std::filesystem::path& folder) const {
  for (const char* name : {"preprocessor_config.json", "processor_config.json", "video_preprocessor_config.json"}) {
    std::error_code ignored;
    if (std::filesystem::is_regular_file(folder_ / name, ignored))
      std::filesystem::copy_file(folder_ / name, folder / name, std::filesystem::copy_options::overwrite_existing);
  }
}

std::string CarriedTensors::describe() const {
  std::set<std::string> parts;
  for (std::string name : names_) {
    if (name.starts_with("model.")) name.erase(0, 6);
    const bool layer = name.starts_with("layers.");
    parts.insert(name.substr(0, name.find('.', layer ? 7 : 0)));
  }
  return fmt::format("{} tensors ({})", names_.size(), fmt::join(parts, ", "));
}

}  // namespace nought
