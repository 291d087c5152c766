#include "nought/io/deepspeed_files.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>

#include "nought/base/open_file.h"
#include "nought/io/files.h"

namespace nought {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kModelStates = "_model_states.pt", kOptimStates = "_optim_states.pt";

std::optional<int64_t> take_number(std::string_view& text, std::string_view before) {
  if (!text.starts_with(before)) return std::nullopt;
  text.remove_prefix(before.size());
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 0) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return number;
}

std::optional<DeepSpeedFile> state_file(const fs::path& path) {
  const std::string name = path.filename().string();
  std::string_view rest = name;
  for (const std::string_view dtype : {"bf16_", "fp16_"})
    if (rest.starts_with(dtype)) rest.remove_prefix(dtype.size());
  DeepSpeedFile file{path};
  const std::optional<int64_t> rank = take_number(rest, "zero_pp_rank_");
  if (rank && !rest.empty()) rest.remove_prefix(1);
  const std::optional<int64_t> model_rank = take_number(rest, "mp_rank_");
  if (!model_rank || (rest != kModelStates && rest != kOptimStates)) return std::nullopt;
  file.of_rank = rank.has_value(), file.rank = rank.value_or(0), file.model_rank = *model_rank;
  file.optimizer = rest == kOptimStates;
  return file;
}

/// What `latest` names, or `latest_universal`; "" if there is neither.
std::string named_step(const fs::path& folder) {
  for (const char* name : {"latest", "latest_universal"}) {
    std::error_code ignored;
    if (!fs::is_regular_file(folder / name, ignored) || fs::file_size(folder / name, ignored) > 4096) continue;
    std::string step = read_bytes(folder / name);
    while (!step.empty() && (step.back() == '\n' || step.back() == '\r' || step.back() == ' ')) step.pop_back();
    if (is_file_name(step)) return step;
  }
  return "";
}

}  // namespace

std::vector<DeepSpeedFile> deepspeed_files(const fs::path& folder) {
  std::vector<DeepSpeedFile> files;
  std::error_code ignored;
  for (const fs::directory_entry& each : entries_of(folder, ignored))
    if (std::optional<DeepSpeedFile> file = state_file(each.path())) files.push_back(*std::move(file));
  std::sort(files.begin(), files.end(), [](const DeepSpeedFile& a, const DeepSpeedFile& b) {
    return std::tie(a.model_rank, a.rank, a.path) < std::tie(b.model_rank, b.rank, b.path);
  });
  return files;
}

fs::path deepspeed_step(const fs::path& folder) {
  const std::string step = named_step(folder);
  if (!step.empty()) return folder / step;
  return deepspeed_files(folder).empty() ? fs::path() : folder;
}

}  // namespace nought
