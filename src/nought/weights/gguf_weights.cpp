#include "nought/weights/gguf_weights.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include <xxhash.h>

#include "nought/base/text.h"
#include "nought/io/convert.h"
#include "nought/io/strict_json.h"
#include "nought/models/gguf_places.h"

namespace nought {

namespace {

/// A shape without dimensions of 1: a gate is a row to some converters and a vector to others.
std::vector<int64_t> without_ones(const Shape& shape) {
  std::vector<int64_t> all(shape.begin(), shape.end());
  std::erase(all, 1);
  return all;
}

/// Decodes elements of a flattened matrix.
void decode_flat(const PackedMatrix& matrix, Interval elements, float* target) {
  for (int64_t begin = elements.begin; begin < elements.end;) {
    const int64_t row = begin / matrix.columns, column = begin % matrix.columns;
    const bool whole = column == 0 && elements.end - begin >= matrix.columns;
    const int64_t rows = whole ? (elements.end - begin) / matrix.columns : 1;
    const int64_t end_column = whole ? matrix.columns : std::min(matrix.columns, column + elements.end - begin);
    matrix.decode({row, row + rows}, {column, end_column}, target);
    const int64_t count = rows * (end_column - column);
    begin += count, target += count;
  }
}

/// Decodes what a part has of a sheet into it.
void read_part(const GgufPlace& place, const GgufPart& part, const PackedMatrix& matrix, int64_t sheet,
               std::vector<float>& values) {
  const std::vector<GgufLine> lines = part.lines();
  const int64_t shift = sheet * part.step;
  std::vector<float> run;
  for (size_t first = 0; first < lines.size();) {
    size_t last = first + 1;
    int64_t end = lines[first].to + lines[first].count;
    for (; last < lines.size() && lines[last].to == end; ++last) end += lines[last].count;
    run.resize(static_cast<size_t>(end - lines[first].to));
    decode_flat(matrix, {lines[first].to + shift, end + shift}, run.data());
    const float* from = run.data();
    for (; first < last; ++first)
      for (int64_t i = 0; i < lines[first].count; ++i)
        values[static_cast<size_t>(lines[first].from + i * lines[first].stride)] = place.loaded(*from++);
  }
}

/// Whole blocks of a sheet that lie behind each other in a tensor, too.
struct Run {
  Interval elements;       // of the first sheet
  int64_t to = 0;          // where they lie in the tensor
  int64_t step = 0;        // from one sheet to the next there
  const std::byte* bytes;  // of the tensor
};

/// All of a sheet, in its order, if its blocks are those of the tensors, in one format.
std::optional<std::vector<Run>> runs_of(const GgufPlace& place, const std::vector<PackedMatrix>& matrices,
                                        int64_t numel, const WeightFormat& format) {
  if (format.block == 1 || place.offset != 0 || place.factor != 1 || place.negative_exp) return std::nullopt;
  const auto whole = [&](int64_t count) { return count % format.block == 0; };
  std::vector<Run> runs;
  for (size_t i = 0; i < matrices.size(); ++i) {
    const GgufPart& part = place.parts[i];
    if (matrices[i].format != &format) return std::nullopt;
    const std::byte* bytes = matrices[i].codes.data();
    if (place.in_order()) {
      runs.push_back({{0, numel}, part.to, 0, bytes});
    } else {
      for (const GgufLine& line : part.lines()) {
        if (line.stride != 1) return std::nullopt;
        runs.push_back({{line.from, line.from + line.count}, line.to, part.step, bytes});
      }
    }
  }
  std::ranges::sort(runs, {}, [](const Run& run) { return run.elements.begin; });
  for (const Run& run : runs)
    if (!whole(run.elements.begin) || !whole(run.elements.size()) || !whole(run.to) || !whole(run.step))
      return std::nullopt;
  return runs;
}

/// The bytes of `elements`, whole blocks.
void read_runs(const std::vector<Run>& runs, int64_t sheet, const WeightFormat& format, Interval elements,
               std::byte* to) {
  for (int64_t at = elements.begin; at < elements.end;) {
    const int64_t which = at / sheet, within = at % sheet;
    const auto behind = std::ranges::upper_bound(runs, within, {}, [](const Run& run) { return run.elements.begin; });
    const Run& run = *std::prev(behind);
    const int64_t count = std::min(run.elements.end - within, elements.end - at);
    const int64_t from = run.to + which * run.step + within - run.elements.begin;
    const int64_t bytes = count / format.block * format.block_bytes;
    std::memcpy(to, run.bytes + from / format.block * format.block_bytes, static_cast<size_t>(bytes));
    at += count, to += bytes;
  }
}

/// Factors of rotary positions, which the config has.
bool is_rope_factor(const std::string& name) {
  return name.starts_with("rope_freqs") || name.starts_with("rope_factors");
}

}  // namespace

GgufWeights::GgufWeights(const std::filesystem::path& path, const ModelConfig& config, const Model& model)
    : file_(path) {
  const GgufPlaces places(config);
  std::set<std::string> used;
  for (const auto& unit : model.units())
    for (const Parameter& parameter : unit->parameters()) {
      if (parameter.role == ParameterRole::adapter) continue;
      Held held = open(parameter, places.of(parameter));
      if (held_.empty()) dtype_ = plain_dtype(held.entries.front()->type);
      for (const GgufEntry* entry : held.entries) used.insert(entry->name);
      held_.emplace(parameter.name, std::move(held));
    }
  for (const GgufEntry& entry : file_.entries())
    if (!used.contains(entry.name) && !is_rope_factor(entry.name)) unused_.push_back(entry.name);
}

const GgufEntry& GgufWeights::find(const Parameter& parameter, const GgufPart& part) const {
  const GgufEntry* entry = file_.find(part.tensor);
  const std::string path = file_.path().string();
  if (entry == nullptr) {
    std::vector<std::string> names;
    for (const GgufEntry& each : file_.entries()) names.push_back(each.name);
    fail<IoError>("{}: no tensor \"{}\", which holds {}{}", path, part.tensor, parameter.name,
                  did_you_mean(part.tensor, names));
  }
  require<IoError>(without_ones(entry->shape) == without_ones(part.shape),
                   "{}: tensor \"{}\" has shape {}, the metadata ask for {}", path, part.tensor, entry->shape,
                   part.shape);
  const WeightFormat& format = weight_format(entry->type);
  require<IoError>(parameter.placement.global.rank() >= 2 || format.block == 1,
                   "{}: tensor \"{}\" has type {}, a vector of {} is not read", path, part.tensor, format.name,
                   format.name);
  return *entry;
}

GgufWeights::Held GgufWeights::open(const Parameter& parameter, GgufPlace place) const {
  Held held{.place = std::move(place), .tensor = {}, .entries = {}, .matrices = {}};
  for (const GgufPart& part : held.place.parts) {
    const GgufEntry& entry = find(parameter, part);
    PackedMatrix matrix;
    matrix.format = &weight_format(entry.type);
    matrix.codes = file_.raw(entry);
    matrix.columns = part.shape[-1];
    matrix.rows = matrix.columns == 0 ? 0 : entry.numel() / matrix.columns;
    held.entries.push_back(&entry);
    held.matrices.push_back(std::move(matrix));
  }
  if (!held.place.in_order()) return held;
  PackedTensor& tensor = held.tensor;
  tensor.shape = parameter.placement.global;
  tensor.offset = held.place.offset, tensor.factor = held.place.factor;
  tensor.matrix = held.matrices.front();
  tensor.first_row = tensor.matrix.columns == 0 ? 0 : held.place.parts.front().to / tensor.matrix.columns;
  return held;
}

void GgufWeights::read_sheets(const Held& held, std::span<const Interval> elements, const Tensor& destination) {
  const int64_t size = held.place.sheet;
  std::vector<float> values(static_cast<size_t>(size)), run;
  int64_t read = -1;  // the sheet that `values` holds
  std::byte* target = destination.raw();
  for (const Interval& interval : elements)
    for (int64_t begin = interval.begin; begin < interval.end;) {
      const int64_t sheet = begin / size, end = std::min(interval.end, (sheet + 1) * size);
      if (sheet != read) {
        for (size_t i = 0; i < held.matrices.size(); ++i)
          read_part(held.place, held.place.parts[i], held.matrices[i], sheet, values);
        read = sheet;
      }
      convert_elements(DType::f32, reinterpret_cast<const std::byte*>(values.data() + begin % size),
                       destination.dtype(), target, end - begin);
      target += (end - begin) * size_of(destination.dtype());
      begin = end;
    }
}

void GgufWeights::fill(StateKind kind, const Parameter& parameter, std::span<const Interval> elements,
                       const Tensor& destination) const {
  if (kind != StateKind::master) {
    Stream here;
    return zero(destination, here);
  }
  const Held& held = held_.at(parameter.name);
  held.place.in_order() ? held.tensor.read(elements, destination) : read_sheets(held, elements, destination);
  for (const GgufEntry* entry : held.entries) file_.release(*entry);
}

DType GgufWeights::dtype_of(const Parameter& parameter) const {
  const auto held = held_.find(parameter.name);  // an adapter's, or a head that it has beside the table, is none
  return held == held_.end() ? dtype_ : plain_dtype(held->second.entries.front()->type);
}

bool GgufWeights::decodes(const Parameter& parameter) const {
  const auto held = held_.find(parameter.name);  // an adapter's is none of the file
  return held != held_.end() && weight_format(held->second.entries.front()->type).block > 1;
}

StoredWeights::Storage GgufWeights::storage_of(const Parameter& parameter) const {
  const Held& held = held_.at(parameter.name);
  const WeightFormat& format = weight_format(held.entries.front()->type);
  return {std::string(format.name), parameter.placement.global.numel() / format.block * format.block_bytes};
}

std::optional<StoredBlocks> GgufWeights::blocks(const Parameter& parameter) const {
  const auto found = held_.find(parameter.name);
  if (found == held_.end() || parameter.placement.global.rank() < 2) return std::nullopt;
  const Held& held = found->second;
  const WeightFormat& format = *held.matrices.front().format;
  std::optional<std::vector<Run>> runs = runs_of(held.place, held.matrices, parameter.placement.global.numel(), format);
  if (!runs || parameter.placement.global[-1] % format.block != 0) return std::nullopt;
  const int64_t sheet = held.place.in_order() ? parameter.placement.global.numel() : held.place.sheet;
  return StoredBlocks{&format,
                      [this, &held, &format, sheet, runs = std::move(*runs)](Interval elements, std::byte* to) {
                        read_runs(runs, sheet, format, elements, to);
                        for (const GgufEntry* entry : held.entries) file_.release(*entry);
                      }};
}

std::string GgufWeights::content_hash() const {
  std::map<std::string, std::string> hashes;  // sorted
  for (const auto& [name, held] : held_) {
    std::string& hash = hashes[name];
    for (const GgufEntry* entry : held.entries) {
      const auto bytes = file_.raw(*entry);
      hash += fmt::format("{} {} {} {:016x}\n", name, name_of(entry->type), entry->shape,
                          XXH3_64bits(bytes.data(), bytes.size()));
      file_.release(*entry);
    }
  }
  std::string all;
  for (const auto& [name, hash] : hashes) all += hash;
  return fmt::format("{:016x}", XXH3_64bits(all.data(), all.size()));
}

}  // namespace nought
