#include "nought/models/weight_files.h"

#include <set>

#include "nought/base/json.h"
#include "nought/base/text.h"
#include "nought/io/dcp_folder.h"
#include "nought/io/deepspeed_checkpoint.h"
#include "nought/io/files.h"
#include "nought/io/foreign_run.h"
#include "nought/io/strict_json.h"

namespace nought {

namespace {

/// A whole model in one file, or the index of its shards; what comes first is read.
constexpr std::string_view kWholeFiles[] = {"model.safetensors", "pytorch_model.bin"};
constexpr std::string_view kIndexFiles[] = {"model.safetensors.index.json", "pytorch_model.bin.index.json"};
constexpr int kMaxDepth = 8;  // the metadata is anybody's

Json weight_map_of(const std::filesystem::path& index_file) {
  const Json json = parse_strictly(index_file.string(), "the index", read_bytes(index_file), kMaxDepth);
  const auto map = json.is_object() ? json.find("weight_map") : json.end();
  require<IoError>(json.is_object() && map != json.end() && map->is_object(), "{}: has no \"weight_map\" object",
                   index_file.string());
  return *map;
}

/// The first of these that the folder holds; "" if it holds none.
std::filesystem::path first_in(const std::filesystem::path& folder, std::string_view whole, std::string_view index) {
  std::error_code ignored;
  for (const std::string_view name : {whole, index})
    if (std::filesystem::exists(folder / name, ignored)) return folder / name;
  return {};
}

std::filesystem::path weights_in(const std::filesystem::path& folder) {
  for (size_t i = 0; i < std::size(kWholeFiles); ++i)
    if (const std::filesystem::path found = first_in(folder, kWholeFiles[i], kIndexFiles[i]); !found.empty())
      return found;
  return {};
}

}  // namespace

bool holds_weights(const std::filesystem::path& folder) {
  return !weights_in(folder).empty() || holds_deepspeed_checkpoint(folder) || holds_dcp(folder);
}

WeightFiles::WeightFiles(const std::filesystem::path& path, const WholeShapes& shapes) : path_(path) {
  std::error_code ignored;
  require<IoError>(std::filesystem::exists(path, ignored), "{}: no such model folder", path.string());
  const std::filesystem::path found = std::filesystem::is_directory(path, ignored) ? weights_in(path) : path;
  if (found.empty() && holds_deepspeed_checkpoint(path)) {
    pieces_ = read_deepspeed_checkpoint(path, shapes);
    return;
  }
  if (found.empty() && holds_dcp(path)) {
    pieces_ = read_dcp(path);
    return;
  }
  const std::string part = found.empty() ? describe_part_of_foreign_run(path) : "";
  require<IoError>(part.empty(), "{}", part);
  require<IoError>(!found.empty(),
                   "{}: holds neither {} nor {}, nor an index of their shards, nor a checkpoint of DeepSpeed or FSDP2",
                   path.string(), kWholeFiles[0], kWholeFiles[1]);
  found.extension() == ".json" ? open_index(found) : open_single(found);
}

void WeightFiles::open_single(const std::filesystem::path& file) {
  files_.emplace_back(file);
  for (const std::string& name : files_[0].names()) owner_.emplace(name, 0);
}

void WeightFiles::open_index(const std::filesystem::path& index_file) {
  const Json weight_map = weight_map_of(index_file);
  std::map<std::string, size_t> opened;      // shard -> position in files_
  std::vector<std::set<std::string>> names;  // of each shard
  for (const auto& [tensor, value] : weight_map.items()) {
    require<IoError>(value.is_string(), "{}: tensor \"{}\" is mapped to {}, expected a file name", index_file.string(),
                     excerpt(tensor), value.type_name());
    const auto shard = value.get<std::string>();
    require<IoError>(is_file_name(shard),
                     "{}: tensor \"{}\" is mapped to \"{}\", expected the name of a file in the same folder",
                     index_file.string(), excerpt(tensor), excerpt(shard));
    auto found = opened.find(shard);
    if (found == opened.end()) {
      const std::filesystem::path file = index_file.parent_path() / shard;
      std::error_code ignored;
      require<IoError>(std::filesystem::exists(file, ignored), "{}: the shard is missing; {} maps tensor \"{}\" to it",
                       file.string(), index_file.filename().string(), excerpt(tensor));
      files_.emplace_back(file);
      const std::vector<std::string> held = files_.back().names();
      names.emplace_back(held.begin(), held.end());
      found = opened.emplace(shard, files_.size() - 1).first;
    }
    require<IoError>(names[found->second].contains(tensor), "{}: tensor \"{}\" is not in it, though {} says so",
                     files_[found->second].path().string(), excerpt(tensor), index_file.filename().string());
    owner_.emplace(tensor, found->second);
  }
}

std::vector<TensorEntry> WeightFiles::entries() const {
  std::vector<TensorEntry> all = pieces_ ? pieces_->entries() : std::vector<TensorEntry>();
  for (size_t i = 0; i < files_.size(); ++i) {
    for (const TensorEntry& entry : files_[i].entries()) {
      const auto owner = owner_.find(entry.name);
      if (owner != owner_.end() && owner->second == i) all.push_back(entry);
    }
  }
  return all;
}

std::vector<std::string> WeightFiles::unread() const {
  std::vector<std::string> all;
  if (!pieces_) return all;
  for (const auto& [name, why] : pieces_->unread()) all.push_back(fmt::format("{} {}", excerpt(name), why));
  return all;
}

const TensorEntry* WeightFiles::find(std::string_view name) const {
  if (const auto owner = owner_.find(name); owner != owner_.end()) return files_[owner->second].find(name);
  return pieces_ ? pieces_->find(name) : nullptr;
}

void WeightFiles::refuse_missing(std::string_view name) const {
  std::vector<std::string> names = pieces_ ? pieces_->names() : std::vector<std::string>();
  for (const auto& [tensor, file] : owner_) names.push_back(tensor);
  fail<IoError>("{}: no tensor \"{}\" among the {} of the model{}", path_.string(), excerpt(name), names.size(),
                did_you_mean(name, names));
}

const SafetensorsFile& WeightFiles::file_of(std::string_view name) const {
  if (const auto owner = owner_.find(name); owner != owner_.end()) return files_[owner->second];
  require<IoError>(!in_pieces(name),
                   "{}: tensor \"{}\" lies in pieces, and quantised weights are read from whole files", path_.string(),
                   excerpt(name));
  refuse_missing(name);
}

const std::filesystem::path& WeightFiles::path_of(std::string_view name) const {
  return in_pieces(name) ? pieces_->folder() : file_of(name).path();
}

const TensorEntry& WeightFiles::at(std::string_view name) const {
  if (const TensorEntry* entry = find(name)) return *entry;
  refuse_missing(name);
}

void WeightFiles::read(std::string_view name, Interval elements, const Tensor& destination) const {
  if (in_pieces(name)) return pieces_->read(name, elements, destination);
  file_of(name).read(name, elements, destination);
}

void WeightFiles::visit_bytes(std::string_view name,
                              const std::function<void(std::span<const std::byte>)>& visit) const {
  if (in_pieces(name)) return pieces_->visit_bytes(name, visit);
  const SafetensorsFile& file = file_of(name);
  visit(file.raw(file.at(name)));
  file.release(file.at(name));
}

Tensor WeightFiles::load(std::string_view name, Memory& memory, Category category) const {
  const TensorEntry& entry = at(name);
  Tensor tensor = Tensor::empty(memory, entry.shape, entry.dtype, category, memory.host_pool());
  read(name, {0, entry.shape.numel()}, tensor);
  return tensor;
}

int64_t WeightFiles::bytes_read() const {
  int64_t total = pieces_ ? pieces_->bytes_read() : 0;
  for (const SafetensorsFile& file : files_) total += file.bytes_read();
  return total;
}

int64_t WeightFiles::file_bytes() const {
  int64_t total = pieces_ ? pieces_->file_bytes() : 0;
  for (const SafetensorsFile& file : files_) total += file.file_bytes();
  return total;
}

}  // namespace nought
