#include "nought/io/gguf_file.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "nought/base/error.h"
#include "nought/io/strict_json.h"

namespace nought {

namespace {

namespace fs = std::filesystem;

constexpr uint32_t kNewestVersion = 3, kOldVersion = 2;  // which differ in big-endian files alone
constexpr int64_t kDefaultAlignment = 32;
constexpr int64_t kMaxAlignment = int64_t{1} << 20;
constexpr uint32_t kMaxDims = 4;
constexpr int kMaxSplits = 99'999;

/// Numbers of metadata types.
enum FieldType : uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, string, array, u64, i64, f64 };

/// Takes values from the front of a file, and never what is not there.
class Cursor {
 public:
  Cursor(std::span<const std::byte> bytes, const fs::path& path) : bytes_(bytes), path_(path) {}

  template <class... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    fail<IoError>("{}: {}", path_.string(), fmt::format(format, std::forward<Args>(args)...));
  }
  size_t at() const { return at_; }
  size_t left() const { return bytes_.size() - at_; }

  template <class T>
  T take() {
    if (left() < sizeof(T)) refuse("ends at byte {} within its header: it is truncated", bytes_.size());
    T value;
    std::memcpy(&value, bytes_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return value;
  }
  std::string text(std::string_view what) {
    const auto length = take<uint64_t>();
    if (length > left())
      refuse("{} is said to have {} bytes, {} follow: the file is truncated or damaged", what, length, left());
    std::string value(reinterpret_cast<const char*>(bytes_.data() + at_), length);
    at_ += length;
    return value;
  }
  /// A count of things of at least `size` bytes each.
  uint64_t count(std::string_view what, size_t size) {
    const auto number = take<uint64_t>();
    if (number > left() / size)
      refuse("claims {} {}, for which the {} bytes that follow are too few: it is truncated or damaged", number, what,
             left());
    return number;
  }

 private:
  std::span<const std::byte> bytes_;
  const fs::path& path_;
  size_t at_ = 0;
};

size_t size_of_type(uint32_t type) {
  constexpr size_t kSizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8};  // strings and arrays take at least this
  return type < std::size(kSizes) ? kSizes[type] : 0;
}

int64_t take_integer(Cursor& cursor, uint32_t type, const std::string& key) {
  switch (type) {
    case u8:
      return cursor.take<uint8_t>();
    case i8:
      return cursor.take<int8_t>();
    case u16:
      return cursor.take<uint16_t>();
    case i16:
      return cursor.take<int16_t>();
    case u32:
      return cursor.take<uint32_t>();
    case i32:
      return cursor.take<int32_t>();
    case i64:
      return cursor.take<int64_t>();
    default: {
      const auto value = cursor.take<uint64_t>();
      if (value > static_cast<uint64_t>(INT64_MAX)) cursor.refuse("{} is {}, which is too large", excerpt(key), value);
      return static_cast<int64_t>(value);
    }
  }
}

double take_number(Cursor& cursor, uint32_t type) {
  return type == f32 ? static_cast<double>(cursor.take<float>()) : cursor.take<double>();
}

template <class T, class F>
std::vector<T> take_many(uint64_t count, F&& next) {
  std::vector<T> values;
  values.reserve(count);
  for (uint64_t i = 0; i < count; ++i) values.push_back(next());
  return values;
}

GgufField take_array(Cursor& cursor, const std::string& key) {
  const auto type = cursor.take<uint32_t>();
  if (size_of_type(type) == 0 || type == array)
    cursor.refuse("{} is an array of things of type {}, which is not known", excerpt(key), type);
  const uint64_t count = cursor.count(fmt::format("elements of {}", excerpt(key)), size_of_type(type));
  if (type == string) return {take_many<std::string>(count, [&] { return cursor.text(excerpt(key)); })};
  if (type == f32 || type == f64) return {take_many<double>(count, [&] { return take_number(cursor, type); })};
  const uint32_t each = type == boolean ? uint32_t{u8} : type;
  return {take_many<int64_t>(count, [&] { return take_integer(cursor, each, key); })};
}

GgufField take_field(Cursor& cursor, const std::string& key) {
  const auto type = cursor.take<uint32_t>();
  if (size_of_type(type) == 0) cursor.refuse("{} has type {}, which is not known", excerpt(key), type);
  if (type == array) return take_array(cursor, key);
  if (type == string) return {cursor.text(excerpt(key))};
  if (type == boolean) return {cursor.take<uint8_t>() != 0};
  if (type == f32 || type == f64) return {take_number(cursor, type)};
  return {take_integer(cursor, type, key)};
}

GgufEntry take_entry(Cursor& cursor, size_t file) {
  GgufEntry entry{.name = cursor.text("the name of a tensor"), .shape = {}, .file = file, .bytes = {}};
  const std::string name = excerpt(entry.name);
  const auto rank = cursor.take<uint32_t>();
  if (rank > kMaxDims) cursor.refuse("tensor {} has {} dimensions, at most {} are possible", name, rank, kMaxDims);
  std::vector<int64_t> extents;
  int64_t elements = 1;
  for (uint32_t i = 0; i < rank; ++i) {
    const auto extent = cursor.take<uint64_t>();
    if (extent > static_cast<uint64_t>(INT64_MAX) ||
        __builtin_mul_overflow(elements, static_cast<int64_t>(extent), &elements))
      cursor.refuse("tensor {} has more elements than there are numbers: its dimensions overflow", name);
    extents.push_back(static_cast<int64_t>(extent));
  }
  for (size_t i = extents.size(); i-- > 0;) entry.shape.push_back(extents[i]);
  const auto number = cursor.take<uint32_t>();
  const WeightFormat* format = find_gguf_type(number);
  if (format == nullptr) {
    const std::string_view known = gguf_type_name(number);
    cursor.refuse("tensor {} has type {}, which is not read", name,
                  known.empty() ? fmt::format("{}", number) : std::string(known));
  }
  entry.type = *format->gguf;
  const int64_t row = extents.empty() ? 1 : extents[0];
  if (row % format->block != 0)
    cursor.refuse("tensor {} {} has rows that are no multiple of {}, as {} asks for", name, entry.shape, format->block,
                  format->name);
  const auto offset = cursor.take<uint64_t>();
  int64_t bytes = 0, end = 0;
  if (__builtin_mul_overflow(elements / format->block, format->block_bytes, &bytes) ||
      offset > static_cast<uint64_t>(INT64_MAX) || __builtin_add_overflow(static_cast<int64_t>(offset), bytes, &end))
    cursor.refuse("tensor {} has more bytes than there are numbers: its dimensions overflow", name);
  entry.bytes = {static_cast<int64_t>(offset), end};
  return entry;
}

/// The others of a split, by the first one's name.
fs::path split_path(const fs::path& first, int index, int count) {
  const std::string end = fmt::format("-00001-of-{:05}.gguf", count);
  const std::string name = first.filename().string();
  require<IoError>(name.ends_with(end), "{}: is one of a split of {} files; open the first, whose name ends in {}",
                   first.string(), count, end);
  return first.parent_path() /
         fmt::format("{}-{:05}-of-{:05}.gguf", name.substr(0, name.size() - end.size()), index + 1, count);
}

}  // namespace

bool is_gguf_path(const fs::path& path) { return path.extension() == ".gguf"; }

GgufFile::GgufFile(const fs::path& path) : path_(path) {
  paths_.push_back(path);
  files_.push_back(std::make_shared<const MappedFile>(path));
  parse(0);
  open_split();
  for (size_t i = 0; i < entries_.size(); ++i)
    require<IoError>(index_.emplace(entries_[i].name, i).second, "{}: tensor {} is there twice", path.string(),
                     excerpt(entries_[i].name));
}

void GgufFile::open_split() {
  const int64_t count = integer("split.count").value_or(1);
  if (count <= 1) return;
  require<IoError>(count <= kMaxSplits, "{}: claims to be one of {} files", path_.string(), count);
  for (int i = 1; i < static_cast<int>(count); ++i) {
    const fs::path path = split_path(path_, i, static_cast<int>(count));
    std::error_code ignored;
    require<IoError>(fs::exists(path, ignored), "{}: is missing; {} says that there are {} files", path.string(),
                     path_.filename().string(), count);
    paths_.push_back(path);
    files_.push_back(std::make_shared<const MappedFile>(path));
    parse(static_cast<size_t>(i));
  }
}

void GgufFile::parse(size_t index) {
  const std::span<const std::byte> bytes = files_[index]->bytes();
  Cursor cursor(bytes, paths_[index]);
  if (bytes.size() < 4 || std::memcmp(bytes.data(), "GGUF", 4) != 0)
    cursor.refuse("does not begin with GGUF: it is no GGUF file");
  cursor.take<uint32_t>();
  const auto version = cursor.take<uint32_t>();
  if (version != kNewestVersion && version != kOldVersion) cursor.refuse("has GGUF's version {}; 3 is read", version);
  constexpr size_t kLeastEntry = 8 + 4 + 4 + 8, kLeastField = 8 + 4 + 1;
  const uint64_t num_entries = cursor.count("tensors", kLeastEntry);
  const uint64_t num_fields = cursor.count("metadata", kLeastField);
  std::map<std::string, GgufField> fields;
  for (uint64_t i = 0; i < num_fields; ++i) {
    const std::string key = cursor.text("a key");
    if (!fields.emplace(key, take_field(cursor, key)).second) cursor.refuse("has the key {} twice", excerpt(key));
  }
  const size_t first = entries_.size();
  for (uint64_t i = 0; i < num_entries; ++i) entries_.push_back(take_entry(cursor, index));
  if (index == 0) metadata_ = std::move(fields);
  const int64_t alignment = integer("general.alignment").value_or(kDefaultAlignment);
  if (alignment <= 0 || alignment > kMaxAlignment) cursor.refuse("has an alignment of {} bytes", alignment);
  const int64_t begin = round_up(static_cast<int64_t>(cursor.at()), alignment);
  const auto size = static_cast<int64_t>(bytes.size());
  for (size_t i = first; i < entries_.size(); ++i) {
    GgufEntry& entry = entries_[i];
    if (entry.bytes.end > size - begin)
      cursor.refuse("tensor {} ends at byte {} of the data, {} are there: the file is truncated", excerpt(entry.name),
                    entry.bytes.end, std::max<int64_t>(size - begin, 0));
    entry.bytes = {entry.bytes.begin + begin, entry.bytes.end + begin};
  }
}

int64_t GgufFile::file_bytes() const {
  int64_t bytes = 0;
  for (const auto& file : files_) bytes += std::ssize(file->bytes());
  return bytes;
}

const GgufEntry* GgufFile::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &entries_[found->second];
}

std::span<const std::byte> GgufFile::raw(const GgufEntry& entry) const {
  return files_[entry.file]->bytes().subspan(static_cast<size_t>(entry.bytes.begin),
                                             static_cast<size_t>(entry.bytes.size()));
}

void GgufFile::release(const GgufEntry& entry) const { files_[entry.file]->release(entry.bytes); }

namespace {

/// The value of a key if it is a T.
template <class T>
const T* value_of(const GgufFile& file, const std::string& key, const char* expected) {
  const auto found = file.metadata().find(key);
  if (found == file.metadata().end()) return nullptr;
  const T* value = std::get_if<T>(&found->second.value);
  require<IoError>(value != nullptr, "{}: the metadata {} is not {}", file.path().string(), excerpt(key), expected);
  return value;
}

}  // namespace

std::optional<int64_t> GgufFile::integer(const std::string& key) const {
  const auto* value = value_of<int64_t>(*this, key, "an integer");
  return value == nullptr ? std::nullopt : std::optional(*value);
}

std::optional<double> GgufFile::number(const std::string& key) const {
  const auto* value = value_of<double>(*this, key, "a float");
  return value == nullptr ? std::nullopt : std::optional(*value);
}

std::optional<bool> GgufFile::boolean(const std::string& key) const {
  const auto* value = value_of<bool>(*this, key, "true or false");
  return value == nullptr ? std::nullopt : std::optional(*value);
}

const std::string* GgufFile::text(const std::string& key) const { return value_of<std::string>(*this, key, "text"); }

const std::vector<std::string>* GgufFile::texts(const std::string& key) const {
  return value_of<std::vector<std::string>>(*this, key, "a list of texts");
}

std::vector<int64_t> GgufFile::integers(const std::string& key) const {
  const auto found = metadata_.find(key);
  if (found == metadata_.end()) return {};
  if (const auto* one = std::get_if<int64_t>(&found->second.value)) return {*one};
  return *value_of<std::vector<int64_t>>(*this, key, "a list of integers");
}

std::vector<double> GgufFile::numbers(const std::string& key) const {
  const auto* value = value_of<std::vector<double>>(*this, key, "a list of floats");
  return value == nullptr ? std::vector<double>{} : *value;
}

}  // namespace nought
