// The cache of the Hugging Face hub on this machine, in which models lie by name: hub/models--Org--Name/snapshots.
//
// Non-goals: downloading. Nought reads what transformers or `hf download` have left there.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace nought {

/// The folder of the cache: HF_HUB_CACHE, else HF_HOME/hub, else huggingface/hub in XDG_CACHE_HOME or ~/.cache.
std::filesystem::path hub_cache();
/// True for "Org/Name": two names with a slash between, as the hub has them. A path may look so, too.
bool is_hub_name(std::string_view name);
/// The snapshot of the model "Org/Name" (or "gpt2", as the oldest are called) that its branch main points to; nothing
/// if the cache does not hold one.
std::optional<std::filesystem::path> hub_snapshot(const std::string& name);

}  // namespace nought
