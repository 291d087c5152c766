#include "nought/cli/tensor_info.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <string_view>

#include <fmt/format.h>

#include "nought/base/text.h"
#include "nought/io/deepspeed_checkpoint.h"
#include "nought/io/file_format.h"
#include "nought/io/foreign_run.h"
#include "nought/io/strict_json.h"
#include "nought/io/torch_archive.h"
#include "nought/models/weight_files.h"

namespace nought {

namespace {

namespace fs = std::filesystem;

constexpr FileFormat kTensorInfoFormat{"nought-tensor-info", 1};

std::string stored_dtype_name(const TensorEntry& entry) {
  if (!entry.packed) return std::string(name_of(entry.dtype));
  return *entry.packed == Float8::e4m3 ? "f8_e4m3" : *entry.packed == Float8::e5m2 ? "f8_e5m2" : "f8_e8m0";
}

int64_t bytes_of(const TensorEntry& entry) { return entry.shape.numel() * entry.element_size(); }

void add_tensors(const std::vector<TensorEntry>& entries, OrderedJson& info) {
  OrderedJson tensors = OrderedJson::array();
  int64_t bytes = 0, elements = 0;
  for (const TensorEntry& entry : entries) {
    std::vector<int64_t> shape;
    for (int i = 0; i < entry.shape.rank(); ++i) shape.push_back(entry.shape[i]);
    tensors.push_back(
        {{"name", entry.name}, {"dtype", stored_dtype_name(entry)}, {"shape", shape}, {"bytes", bytes_of(entry)}});
    bytes += bytes_of(entry), elements += entry.shape.numel();
  }
  info["tensors"] = tensors;
  info["elements"] = elements;
  info["bytes_of_tensors"] = bytes;
}

/// Tensors of a file whose dtype is none that Nought computes with.
void add_unread(std::vector<std::string> names, const std::vector<TensorEntry>& entries, OrderedJson& info) {
  for (const TensorEntry& entry : entries) std::erase(names, entry.name);
  for (std::string& name : names) name = excerpt(name) + ": its dtype";
  if (!names.empty()) info["not_read"] = names;
}

/// What the names of files of tensors end in; .distcp is refused with what to do.
constexpr std::string_view kExtensions[] = {".safetensors", ".bin", ".pt", ".pth", ".distcp"};

void add_file(const fs::path& path, OrderedJson& info) {
  require<IoError>(path.extension() != ".distcp",
                   "{}: holds pieces of tensors, which .metadata beside it describes: name the folder", path.string());
  const MappedFile file(path);
  info["files"] = 1;
  info["bytes"] = std::ssize(file.bytes());
  if (is_torch_archive(file.bytes())) {
    TorchTensors tensors = read_torch_archive(file.bytes(), path.string(), deepspeed_globals());
    info["written_by"] = "torch.save";
    std::vector<std::string> unread;
    for (const auto& [name, dtype] : tensors.unsupported) {
      std::erase_if(tensors.entries, [&name = name](const TensorEntry& entry) { return entry.name == name; });
      unread.push_back(fmt::format("{}: its dtype {}", excerpt(name), dtype));
    }
    if (!unread.empty()) info["not_read"] = unread;
    return add_tensors(tensors.entries, info);
  }
  const SafetensorsFile tensors(path);
  for (const auto& [key, value] : tensors.metadata()) info["metadata"][key] = value;
  add_unread(tensors.names(), tensors.entries(), info);
  add_tensors(tensors.entries(), info);
}

void add_folder(const fs::path& path, OrderedJson& info) {
  const WeightFiles files(path);
  info["files"] = files.num_files();
  info["bytes"] = files.file_bytes();
  if (holds_foreign_run(path)) add_foreign_run(path, info);
  if (const std::vector<std::string> unread = files.unread(); !unread.empty()) info["not_read"] = unread;
  add_tensors(files.entries(), info);
}

std::string shape_text(const OrderedJson& shape) {
  std::string text;
  for (const auto& extent : shape) text += fmt::format("{}{}", text.empty() ? "" : ", ", extent.get<int64_t>());
  return fmt::format("[{}]", text);
}

void append_tensors(const OrderedJson& tensors, std::string& text) {
  size_t names = 0, shapes = 0;
  for (const auto& each : tensors) {
    names = std::max(names, excerpt(each["name"].get<std::string>()).size());
    shapes = std::max(shapes, shape_text(each["shape"]).size());
  }
  for (const auto& each : tensors)
    text += fmt::format("  {:<{}}  {:<8} {:<{}} {:>10}\n", excerpt(each["name"].get<std::string>()), names,
                        each["dtype"].get<std::string>(), shape_text(each["shape"]), shapes,
                        format_bytes(each["bytes"].get<int64_t>()));
}

}  // namespace

bool is_of_tensors(const fs::path& path) {
  std::error_code ignored;
  if (fs::is_regular_file(path, ignored))
    return std::find(std::begin(kExtensions), std::end(kExtensions), path.extension()) != std::end(kExtensions);
  return fs::is_directory(path, ignored) && !fs::exists(path / "config.json", ignored) && holds_weights(path);
}

void add_foreign_run(const fs::path& folder, OrderedJson& info) try {
  const ForeignRun run = read_foreign_run(folder);
  info["written_by"] = run.writer;
  if (run.updates + run.skipped > 0) info["step"] = run.updates + run.skipped;
  if (run.skipped > 0) info["skipped"] = run.skipped;
  if (!run.optimizer.empty()) info["optimizer"] = run.optimizer;
  for (const auto& [state, table] : run.states) {
    int64_t bytes = 0;
    const std::vector<TensorEntry> entries = table.entries();
    for (const TensorEntry& entry : entries) bytes += bytes_of(entry);
    info["optimizer_states"].push_back({{"state", state},
                                        {"tensors", std::ssize(entries)},
                                        {"dtype", entries.empty() ? "" : stored_dtype_name(entries.front())},
                                        {"bytes", bytes}});
  }
} catch (const IoError& error) {  // the weights are read all the same
  info["no_optimizer"] = error.what();
}

OrderedJson tensor_info(const fs::path& path) {
  OrderedJson info{{"format", kTensorInfoFormat.str()}, {"path", path.string()}, {"kind", "tensors"}};
  std::error_code ignored;
  fs::is_directory(path, ignored) ? add_folder(path, info) : add_file(path, info);
  return info;
}

std::string tensor_info_text(const OrderedJson& info) {
  std::string text = fmt::format("tensors of {}\n", info["path"].get<std::string>());
  const auto line = [&](std::string_view name, const std::string& value) {
    text += fmt::format("  {:<13}{}\n", name, value);
  };
  const auto number = [&](const char* key) { return info.value(key, int64_t{0}); };
  if (info.contains("written_by")) line("written by", info["written_by"].get<std::string>());
  if (info.contains("step"))
    line("step", fmt::format("{}{}", number("step"),
                             number("skipped") > 0 ? fmt::format(", {} updates skipped", number("skipped")) : ""));
  for (const std::string& state : foreign_states_text(info)) line("optimizer", state);
  if (info.contains("metadata"))
    for (const auto& [key, value] : info["metadata"].items())
      line("metadata", fmt::format("{}: {}", excerpt(key), excerpt(value.get<std::string>())));
  line("files", fmt::format("{} with {}", number("files"), format_bytes(number("bytes"))));
  line("tensors",
       fmt::format("{} with {} elements, {}", info["tensors"].size(),
                   format_count(static_cast<double>(number("elements"))), format_bytes(number("bytes_of_tensors"))));
  if (info.contains("not_read"))
    for (const auto& each : info["not_read"]) line("not read", each.get<std::string>());
  append_tensors(info["tensors"], text);
  return text;
}

std::vector<std::string> foreign_states_text(const OrderedJson& info) {
  std::vector<std::string> lines;
  const std::string optimizer = info.value("optimizer", std::string());
  if (info.contains("no_optimizer"))
    lines.push_back(fmt::format("not read: {}", info["no_optimizer"].get<std::string>()));
  if (!info.contains("optimizer_states")) return lines;
  for (const auto& each : info["optimizer_states"])
    lines.push_back(fmt::format("{}{} of {} tensors in {}, {}", optimizer.empty() ? "" : optimizer + ": ",
                                excerpt(each["state"].get<std::string>()), each["tensors"].get<int64_t>(),
                                each["dtype"].get<std::string>(), format_bytes(each["bytes"].get<int64_t>())));
  return lines;
}

}  // namespace nought
