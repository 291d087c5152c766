#include "nought/io/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <optional>
#include <tuple>
#include <utility>

#include "nought/base/checked_math.h"
#include "nought/base/json.h"
#include "nought/base/text.h"
#include "nought/io/convert.h"
#include "nought/io/strict_json.h"
#include "nought/io/torch_archive.h"

namespace nought {

static_assert(std::endian::native == std::endian::little, "safetensors are little-endian, and read without swapping");

namespace {

constexpr int64_t kMaxHeader = 100'000'000;          // the format's own limit
constexpr int64_t kReleaseBytes = int64_t{8} << 20;  // read before their pages are handed back
constexpr int kMaxDepth = 4;                         // tensor -> shape -> number needs three

struct FileDType {
  std::string_view name;
  int64_t size;
  std::optional<DType> dtype;  // none: known to the format, not to Nought
  std::optional<Float8> packed = {};
};
constexpr FileDType kFileDTypes[] = {{"F64", 8, DType::f64},
                                     {"F32", 4, DType::f32},
                                     {"BF16", 2, DType::bf16},
                                     {"F16", 2, DType::f16},
                                     {"I64", 8, DType::i64},
                                     {"I32", 4, DType::i32},
                                     {"U8", 1, DType::u8},
                                     {"BOOL", 1, std::nullopt},
                                     {"I8", 1, DType::i8},
                                     {"I16", 2, std::nullopt},
                                     {"U16", 2, std::nullopt},
                                     {"U32", 4, std::nullopt},
                                     {"U64", 8, std::nullopt},
                                     {"F8_E4M3", 1, DType::bf16, Float8::e4m3},
                                     {"F8_E5M2", 1, DType::bf16, Float8::e5m2},
                                     {"F8_E8M0", 1, DType::bf16, Float8::e8m0},
                                     {"C64", 8, std::nullopt}};

const FileDType* find_dtype(std::string_view name) {
  for (const FileDType& known : kFileDTypes) {
    if (known.name == name) return &known;
  }
  return nullptr;
}

std::string known_dtypes() {
  std::string names;
  for (const FileDType& known : kFileDTypes) {
    if (known.dtype) names += fmt::format("{}{}", names.empty() ? "" : ", ", known.name);
  }
  return names;
}

// A count or offset of the header; nullopt if it is no integer in [0, 2^63).
std::optional<int64_t> natural(const Json& value) {
  if (!value.is_number_unsigned()) return std::nullopt;
  const auto number = value.get<uint64_t>();
  if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
  return static_cast<int64_t>(number);
}

/// The tensor that a message is about. Its words are made for a message only: a header may describe 50,000 tensors.
struct Where {
  const std::filesystem::path& file;
  const std::string& name;

  template <class... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    fail<IoError>("{}: tensor \"{}\" {}", file.string(), excerpt(name),
                  fmt::format(format, std::forward<Args>(args)...));
  }
};

Shape parse_shape(const Where& where, const Json& description) {
  const auto found = description.find("shape");
  if (found == description.end() || !found->is_array()) where.refuse("has no \"shape\" array");
  if (found->size() > Shape::kMaxRank)
    where.refuse("has {} dimensions, at most {} are supported", found->size(), int{Shape::kMaxRank});
  Shape shape;
  for (const Json& extent : *found) {
    const std::optional<int64_t> number = natural(extent);
    if (!number) where.refuse("has the extent {} in its shape, expected a count", excerpt(extent.dump()));
    shape.push_back(*number);
  }
  return shape;
}

Interval parse_offsets(const Where& where, const Json& description, int64_t available) {
  const auto found = description.find("data_offsets");
  if (found == description.end() || !found->is_array() || found->size() != 2)
    where.refuse("has no \"data_offsets\" [begin, end]");
  const std::optional<int64_t> begin = natural((*found)[0]), end = natural((*found)[1]);
  if (!begin || !end || *begin > *end)
    where.refuse("has the data_offsets {}, expected 0 <= begin <= end", excerpt(found->dump()));
  if (*end > available)
    where.refuse("ends at byte {} of the data, but the file holds {}: it is truncated", *end, available);
  return {*begin, *end};
}

}  // namespace

std::string_view safetensors_name(DType dtype, std::optional<Float8> packed) {
  for (const FileDType& known : kFileDTypes) {
    if (packed ? known.packed == packed : known.dtype == dtype && !known.packed) return known.name;
  }
  return "?";
}

SafetensorsFile::SafetensorsFile(std::filesystem::path path)
    : path_(std::move(path)), file_(std::make_shared<const MappedFile>(path_)) {
  const std::span<const std::byte> bytes = file_->bytes();
  const std::string file = path_.string();
  if (is_torch_archive(bytes)) {
    take(read_torch_archive(bytes, file));
    return;
  }
  require<IoError>(
      !is_old_torch_file(bytes),
      "{}: a pickle that is no archive, as torch wrote them before 1.6: load it there, and torch.save it with "
      "a newer one",
      file);
  require<IoError>(bytes.size() >= 8, "{}: {} bytes are no safetensors file, the header's length alone takes 8", file,
                   bytes.size());
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof(length));
  require<IoError>(length <= kMaxHeader,
                   "{}: claims a header of {} bytes, at most {} are allowed: not a safetensors file", file, length,
                   kMaxHeader);
  require<IoError>(length <= bytes.size() - 8, "{}: claims a header of {} bytes, only {} follow: the file is truncated",
                   file, length, bytes.size() - 8);
  data_begin_ = 8 + static_cast<int64_t>(length);
  parse({reinterpret_cast<const char*>(bytes.data()) + 8, static_cast<size_t>(length)});
}

void SafetensorsFile::take(TorchTensors tensors) {
  for (auto& [name, dtype] : tensors.unsupported) unsupported_.emplace(std::move(name), std::move(dtype));
  entries_ = std::move(tensors.entries);
  index_entries();
}

std::span<const std::byte> SafetensorsFile::data() const {
  return file_->bytes().subspan(static_cast<size_t>(data_begin_));
}

void SafetensorsFile::parse(std::string_view header) {
  const std::string file = path_.string();
  require<IoError>(header.starts_with('{'), "{}: the header does not begin with '{{': not a safetensors file", file);
  const Json rest = parse_strictly(file, "the header", header, kMaxDepth,
                                   [&](const std::string& name, const Json& value) { parse_entry(name, value); });
  for (const auto& [name, description] : rest.items()) parse_entry(name, description);  // each is refused
  check_layout();
}

void SafetensorsFile::parse_entry(const std::string& name, const Json& description) {
  const Where where{path_, name};
  if (!description.is_object()) where.refuse("is described by {}, expected an object", description.type_name());
  if (name == "__metadata__") {
    for (const auto& [key, value] : description.items()) {
      require<IoError>(value.is_string(), "{}: the metadata \"{}\" is not a string", path_.string(), excerpt(key));
      metadata_[key] = value.get<std::string>();
    }
    return;
  }
  const auto dtype = description.find("dtype");
  if (dtype == description.end() || !dtype->is_string()) where.refuse("has no \"dtype\"");
  const FileDType* known = find_dtype(dtype->get_ref<const std::string&>());
  if (known == nullptr)
    where.refuse("has the unknown dtype \"{}\", known are {}", excerpt(dtype->get_ref<const std::string&>()),
                 known_dtypes());
  TensorEntry entry{name, known->dtype.value_or(DType::u8), parse_shape(where, description), {}, known->packed};
  entry.bytes = parse_offsets(where, description, static_cast<int64_t>(data().size()));
  const std::optional<int64_t> bytes = checked_product(known->size, entry.shape);
  if (!bytes) where.refuse("has the absurd shape {}", entry.shape);
  if (*bytes != entry.bytes.size())
    where.refuse("is {}{} and needs {} bytes, its data_offsets span {}", known->name, entry.shape, *bytes,
                 entry.bytes.size());
  if (!known->dtype) unsupported_.emplace(name, known->name);
  entries_.push_back(std::move(entry));
}

// The format wants the data covered without holes and overlaps: anything else means that offsets are damaged.
void SafetensorsFile::check_layout() {
  const std::string file = path_.string();
  std::sort(entries_.begin(), entries_.end(), [](const TensorEntry& a, const TensorEntry& b) {
    return std::tuple(a.bytes.begin, a.bytes.end, std::string_view(a.name)) <
           std::tuple(b.bytes.begin, b.bytes.end, std::string_view(b.name));
  });
  int64_t covered = 0;
  for (const TensorEntry& entry : entries_) {
    if (entry.bytes.begin < covered)
      Where{path_, entry.name}.refuse("begins at byte {} and overlaps another up to {}", entry.bytes.begin, covered);
    if (entry.bytes.begin > covered)
      fail<IoError>("{}: bytes {} to {}, before tensor \"{}\", belong to no tensor", file, covered, entry.bytes.begin,
                    excerpt(entry.name));
    covered = entry.bytes.end;
  }
  require<IoError>(covered == static_cast<int64_t>(data().size()), "{}: the last {} bytes belong to no tensor", file,
                   static_cast<int64_t>(data().size()) - covered);
  index_entries();
}

void SafetensorsFile::index_entries() {
  std::erase_if(entries_, [&](const TensorEntry& entry) { return unsupported_.contains(entry.name); });
  for (size_t i = 0; i < entries_.size(); ++i) index_.emplace(entries_[i].name, i);
}

std::vector<std::string> SafetensorsFile::names() const {
  std::vector<std::string> all;
  for (const TensorEntry& entry : entries_) all.push_back(entry.name);
  for (const auto& [name, dtype] : unsupported_) all.push_back(name);
  return all;
}

const TensorEntry* SafetensorsFile::find(std::string_view name) const {
  const std::string key(name);
  if (const auto found = index_.find(key); found != index_.end()) return &entries_[found->second];
  if (const auto found = unsupported_.find(key); found != unsupported_.end()) {
    fail<IoError>("{}: tensor \"{}\" has dtype {}, supported are {}", path_.string(), excerpt(key), found->second,
                  known_dtypes());
  }
  return nullptr;
}

const TensorEntry& SafetensorsFile::at(std::string_view name) const {
  if (const TensorEntry* entry = find(name)) return *entry;
  const std::vector<std::string> all = names();
  fail<IoError>("{}: no tensor \"{}\" among its {}{}", path_.string(), excerpt(name), all.size(),
                did_you_mean(name, all));
}

std::span<const std::byte> SafetensorsFile::raw(const TensorEntry& entry) const {
  return data().subspan(static_cast<size_t>(entry.bytes.begin), static_cast<size_t>(entry.bytes.size()));
}

void SafetensorsFile::read(std::string_view name, Interval elements, const Tensor& destination) const {
  const TensorEntry& entry = at(name);
  const int64_t total = entry.shape.numel();
  require<ShapeError>(0 <= elements.begin && elements.begin <= elements.end && elements.end <= total,
                      "{}: elements [{}, {}) leave tensor \"{}\" {}", path_.string(), elements.begin, elements.end,
                      excerpt(name), entry.shape);
  require<ShapeError>(destination.numel() == elements.size(), "{}: {} elements of tensor \"{}\" do not fill {}",
                      path_.string(), elements.size(), excerpt(name), destination);
  const int64_t size = entry.element_size(), block = kReleaseBytes / size;
  for (int64_t begin = elements.begin; begin < elements.end; begin += block) {
    const int64_t end = std::min(elements.end, begin + block);
    const Interval bytes{entry.bytes.begin + begin * size, entry.bytes.begin + end * size};
    const std::byte* source = data().data() + bytes.begin;
    std::byte* target = destination.raw() + (begin - elements.begin) * size_of(destination.dtype());
    try {
      if (entry.packed) convert_elements(*entry.packed, source, destination.dtype(), target, end - begin);
      if (!entry.packed) convert_elements(entry.dtype, source, destination.dtype(), target, end - begin);
    } catch (const ShapeError& error) {
      fail<IoError>("{}: tensor \"{}\": {}", path_.string(), excerpt(name), error.what());
    }
    release(bytes);
  }
  *bytes_read_ += elements.size() * size;
}

void SafetensorsFile::release(Interval bytes) const {
  file_->release({data_begin_ + bytes.begin, data_begin_ + bytes.end});
}

Tensor SafetensorsFile::load(std::string_view name, Memory& memory, Category category) const {
  const TensorEntry& entry = at(name);
  Tensor tensor = Tensor::empty(memory, entry.shape, entry.dtype, category, memory.host_pool());
  read(name, {0, entry.shape.numel()}, tensor);
  return tensor;
}

}  // namespace nought
