#include "nought/io/torch_archive.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>

#include "nought/base/error.h"
#include "nought/io/pickle.h"
#include "nought/io/strict_json.h"

namespace nought {

namespace {

constexpr std::string_view kLocalHeader("PK\x03\x04", 4), kCentralHeader("PK\x01\x02", 4), kEnd("PK\x05\x06", 4),
    kEnd64("PK\x06\x06", 4), kLocator64("PK\x06\x07", 4);
constexpr int kMostDepth = 16;                      // how deep dicts lie within dicts
constexpr int64_t kMostEntries = int64_t{1} << 20;  // a dict that lies in many others counts each time
constexpr size_t kMostName = 4096;

/// The files of a ZIP archive, which lie in it as they are.
class Zip {
 public:
  Zip(std::span<const std::byte> bytes, const std::string& source) : bytes_(bytes), source_(source) { read(); }

  std::map<std::string, Interval> take() { return std::move(files_); }

 private:
  template <class T>
  T number(uint64_t at) const {
    require<IoError>(at <= bytes_.size() && sizeof(T) <= bytes_.size() - at,
                     "{}: the archive is truncated: copy the file again", source_);
    T value{};
    std::memcpy(&value, bytes_.data() + at, sizeof(T));
    return value;
  }
  std::string_view text(uint64_t at, uint64_t size) const {
    require<IoError>(at <= bytes_.size() && size <= bytes_.size() - at,
                     "{}: the archive is truncated: copy the file again", source_);
    return {reinterpret_cast<const char*>(bytes_.data()) + at, size};
  }
  bool has(uint64_t at, std::string_view mark) const {
    return at <= bytes_.size() && mark.size() <= bytes_.size() - at && text(at, mark.size()) == mark;
  }

  void read() {
    constexpr uint64_t kEndSize = 22, kMostComment = 65535;
    require<IoError>(bytes_.size() >= kEndSize, "{}: {} bytes are no archive", source_, bytes_.size());
    uint64_t end = bytes_.size() - kEndSize;
    const uint64_t least = end > kMostComment ? end - kMostComment : 0;
    while (!has(end, kEnd)) {
      require<IoError>(end > least, "{}: the archive has no end: the file is truncated: copy it again", source_);
      --end;
    }
    uint64_t count = number<uint16_t>(end + 10), at = number<uint32_t>(end + 16);
    if (end >= 20 && has(end - 20, kLocator64)) {
      const auto end64 = number<uint64_t>(end - 12);
      require<IoError>(has(end64, kEnd64),
                       "{}: the archive's directory is not where it says: the file is damaged, copy it again", source_);
      count = number<uint64_t>(end64 + 32), at = number<uint64_t>(end64 + 48);
    }
    for (uint64_t i = 0; i < count; ++i) at = read_entry(at);
  }
  /// Returns where the next entry of the directory begins.
  uint64_t read_entry(uint64_t at) {
    require<IoError>(has(at, kCentralHeader), "{}: the archive's directory is damaged: copy the file again", source_);
    const auto method = number<uint16_t>(at + 10);
    uint64_t packed = number<uint32_t>(at + 20), size = number<uint32_t>(at + 24), local = number<uint32_t>(at + 42);
    const auto name_size = number<uint16_t>(at + 28), extra_size = number<uint16_t>(at + 30),
               comment_size = number<uint16_t>(at + 32);
    const std::string name(text(at + 46, name_size));
    const uint64_t extra = at + 46 + name_size;
    read_extra(extra, extra_size, size, packed, local);
    require<IoError>(method == 0 && packed == size,
                     "{}: {} is compressed, which torch.save does not do: pack it without compression (zip -0)",
                     source_, excerpt(name));
    require<IoError>(has(local, kLocalHeader),
                     "{}: {} is not where the archive says: the file is damaged, copy it again", source_,
                     excerpt(name));
    const uint64_t begin = local + 30 + number<uint16_t>(local + 26) + number<uint16_t>(local + 28);
    text(begin, size);
    require<IoError>(
        files_.emplace(name, Interval{static_cast<int64_t>(begin), static_cast<int64_t>(begin + size)}).second,
        "{}: the archive has {} twice", source_, excerpt(name));
    return extra + extra_size + comment_size;
  }
  /// The sizes of a ZIP64 entry, of which the short fields hold nothing but ones.
  void read_extra(uint64_t at, uint64_t size, uint64_t& whole, uint64_t& packed, uint64_t& local) const {
    constexpr uint64_t kElsewhere = 0xFFFFFFFF;
    for (const uint64_t end = at + size; at + 4 <= end;) {
      const auto id = number<uint16_t>(at), length = number<uint16_t>(at + 2);
      uint64_t field = at + 4;
      for (uint64_t* value : {&whole, &packed, &local})
        if (id == 1 && *value == kElsewhere) *value = number<uint64_t>(field), field += 8;
      at += 4 + uint64_t{length};
    }
  }

  std::span<const std::byte> bytes_;
  const std::string& source_;
  std::map<std::string, Interval> files_;
};

constexpr TorchDType kDTypes[] = {{"torch.DoubleStorage", "torch.float64", 8, DType::f64},
                                  {"torch.FloatStorage", "torch.float32", 4, DType::f32},
                                  {"torch.BFloat16Storage", "torch.bfloat16", 2, DType::bf16},
                                  {"torch.HalfStorage", "torch.float16", 2, DType::f16},
                                  {"torch.LongStorage", "torch.int64", 8, DType::i64},
                                  {"torch.IntStorage", "torch.int32", 4, DType::i32},
                                  {"torch.ByteStorage", "torch.uint8", 1, DType::u8},
                                  {"torch.CharStorage", "torch.int8", 1, DType::i8},
                                  {"torch.ShortStorage", "torch.int16", 2, std::nullopt},
                                  {"torch.BoolStorage", "torch.bool", 1, std::nullopt},
                                  {"", "torch.float8_e4m3fn", 1, DType::bf16, Float8::e4m3},
                                  {"", "torch.float8_e5m2", 1, DType::bf16, Float8::e5m2}};
/// What describes tensors, and what their dicts are made of.
constexpr std::string_view kAllowed[] = {"collections.OrderedDict",
                                         "torch._utils._rebuild_tensor_v2",
                                         "torch._utils._rebuild_tensor_v3",
                                         "torch._utils._rebuild_parameter",
                                         "torch._utils._rebuild_parameter_with_state",
                                         "torch._tensor._rebuild_from_type_v2",
                                         "torch.Tensor",
                                         "torch.Size",
                                         "torch.storage.UntypedStorage",
                                         "torch.storage.TypedStorage",
                                         "torch.nn.parameter.Parameter",
                                         "torch.device",
                                         "torch.serialization._get_layout"};

using Kind = PickleValue::Kind;

bool begins_with(std::span<const std::byte> bytes, std::string_view mark) {
  return bytes.size() >= mark.size() && std::memcmp(bytes.data(), mark.data(), mark.size()) == 0;
}

std::span<const std::byte> part_of(std::span<const std::byte> bytes, Interval part) {
  return bytes.subspan(static_cast<size_t>(part.begin), static_cast<size_t>(part.size()));
}

constexpr std::string_view kParameter = "torch._utils._rebuild_parameter",
                           kWithState = "torch._utils._rebuild_parameter_with_state",
                           kTyped = "torch._tensor._rebuild_from_type_v2", kSecond = "torch._utils._rebuild_tensor_v2",
                           kThird = "torch._utils._rebuild_tensor_v3";

/// Finds the tensors of what a pickle says.
class TensorsOf {
 public:
  explicit TensorsOf(const TorchArchive& archive) : archive_(archive), pickle_(archive.pickle()) {}

  TorchTensors take() {
    visit("", archive_.root(), 0);
    return std::move(tensors_);
  }

 private:
  static std::string within(const std::string& name, const std::string& key) {
    return name.empty() ? key : name + "." + key;
  }
  void visit(const std::string& name, const PickleValue& value, int depth) {
    const std::string& source = archive_.source();
    require<IoError>(depth < kMostDepth,
                     "{}: dicts lie more than {} deep in each other: save the model's state_dict() alone", source,
                     kMostDepth);
    require<IoError>(++visited_ <= kMostEntries,
                     "{}: its dicts have more than {} entries: save the model's state_dict() alone", source,
                     kMostEntries);
    require<IoError>(name.size() <= kMostName, "{}: a tensor's name has {} bytes, at most {} are read", source,
                     name.size(), kMostName);
    if (const auto entries = pickle_.entries(value)) {
      for (size_t i = 0; i + 1 < entries->size(); i += 2) {
        const PickleValue& key = pickle_[(*entries)[i]];
        if (key.kind != Kind::text && key.kind != Kind::integer) continue;
        const std::string text = key.kind == Kind::text ? key.text : fmt::format("{}", key.integer);
        visit(within(name, text), pickle_[(*entries)[i + 1]], depth + 1);
      }
    } else if (value.kind == Kind::list) {
      for (size_t i = 0; i < value.items.size(); ++i)
        visit(within(name, fmt::format("{}", i)), pickle_.item(value, i), depth + 1);
    } else if (archive_.is_tensor(value)) {
      TorchTensor tensor = archive_.tensor(name, value);
      if (!tensor.dtype->dtype) tensors_.unsupported.emplace_back(name, std::string(tensor.dtype->name));
      tensors_.entries.push_back(std::move(tensor.entry));
    }
  }

  const TorchArchive& archive_;
  const Pickle& pickle_;
  int64_t visited_ = 0;
  TorchTensors tensors_;
};

}  // namespace

const TorchDType* find_torch_dtype(std::string_view name) {
  for (const TorchDType& each : kDTypes)
    if (!name.empty() && (name == each.storage || name == each.name)) return &each;
  return nullptr;
}

bool is_global_of_tensors(std::string_view name, std::span<const std::string_view> more) {
  return std::ranges::count(kAllowed, name) > 0 || std::ranges::count(more, name) > 0 ||
         find_torch_dtype(name) != nullptr;
}

TorchArchive::TorchArchive(std::span<const std::byte> bytes, std::string source, std::span<const std::string_view> more)
    : source_(std::move(source)), files_(Zip(bytes, source_).take()) {
  constexpr std::string_view kPickle = "data.pkl";
  const auto found = std::find_if(files_.begin(), files_.end(), [&](const auto& file) {
    return file.first == kPickle || file.first.ends_with("/data.pkl");
  });
  require<IoError>(found != files_.end(), "{}: an archive without data.pkl, which torch.save writes", source_);
  prefix_ = found->first.substr(0, found->first.size() - kPickle.size());
  if (const auto order = files_.find(prefix_ + "byteorder"); order != files_.end())
    require<IoError>(begins_with(part_of(bytes, order->second), "little"), "{}: its numbers are not little-endian",
                     source_);
  pickle_ = read_pickle(part_of(bytes, found->second), source_,
                        [more](std::string_view name) { return is_global_of_tensors(name, more); });
}

template <class... Args>
void TorchArchive::refuse(const std::string& name, fmt::format_string<Args...> format, Args&&... args) const {
  fail<IoError>("{}: tensor \"{}\" {}", source_, excerpt(name), fmt::format(format, std::forward<Args>(args)...));
}

bool TorchArchive::is_tensor(const PickleValue& value) const {
  return pickle_.calls(value, kSecond) || pickle_.calls(value, kThird) || pickle_.calls(value, kTyped) ||
         is_parameter(value);
}

bool TorchArchive::is_parameter(const PickleValue& value) const {
  return pickle_.calls(value, kParameter) || pickle_.calls(value, kWithState);
}

int64_t TorchArchive::count(const std::string& name, const PickleValue& value) const {
  if (value.kind != Kind::integer || value.integer < 0)
    refuse(name, "has a size that is no count: the file is damaged");
  return value.integer;
}

// The arguments are storage, offset, size, stride, requires_grad, hooks; the third version also has the dtype.
TorchTensor TorchArchive::tensor(const std::string& name, const PickleValue& value) const {
  if (is_parameter(value)) {
    const PickleValue& of = pickle_.item(value, 1);
    if (of.kind != Kind::list || of.items.empty() || is_parameter(pickle_.item(of, 0)))
      refuse(name, "is a parameter of nothing");
    return tensor(name, pickle_.item(of, 0));
  }
  if (!is_tensor(value)) refuse(name, "is no tensor");
  // A tensor with attributes names its function, its type, the arguments and the attributes.
  const PickleValue& given = pickle_.item(value, 1);
  const bool typed = pickle_.calls(value, kTyped);
  if (typed && (given.kind != Kind::list || given.items.size() < 3)) refuse(name, "is described by too little");
  const std::string& function = typed ? pickle_.item(given, 0).text : pickle_.item(value, 0).text;
  const PickleValue& arguments = typed ? pickle_.item(given, 2) : given;
  const bool third = function == kThird;
  if (!third && function != kSecond) refuse(name, "is made by {}, which is not read", excerpt(function));
  const size_t least = third ? 7 : 4;
  if (arguments.kind != Kind::list || arguments.items.size() < least) refuse(name, "is described by too little");
  const PickleValue& persistent = pickle_.item(arguments, 0);
  const PickleValue* storage = persistent.kind == Kind::persistent ? &pickle_.item(persistent, 0) : nullptr;
  if (storage == nullptr || storage->kind != Kind::list || storage->items.size() < 5) refuse(name, "has no storage");
  const std::string& of = third ? pickle_.item(arguments, 6).text : pickle_.item(*storage, 1).text;
  const TorchDType* dtype = find_torch_dtype(of);
  if (dtype == nullptr) refuse(name, "has the dtype \"{}\", which is not read", excerpt(of));
  const std::string file = prefix_ + "data/" + pickle_.item(*storage, 2).text;
  const auto bytes = files_.find(file);
  if (bytes == files_.end())
    refuse(name, "lies in {}, which the archive does not hold: copy the file again", excerpt(file));
  TensorEntry entry{name, dtype->dtype.value_or(DType::u8), {}, {}, dtype->packed};
  const int64_t numel = shape_of(name, arguments, entry.shape), room = bytes->second.size() / dtype->size;
  const int64_t begin = count(name, pickle_.item(arguments, 1));
  if (begin > room || numel > room - begin)
    refuse(name, "has elements {} to {} of a storage of {}: the file is damaged", begin, begin + numel, room);
  entry.bytes = {bytes->second.begin + begin * dtype->size, bytes->second.begin + (begin + numel) * dtype->size};
  return {std::move(entry), dtype};
}

// Returns the number of elements.
int64_t TorchArchive::shape_of(const std::string& name, const PickleValue& arguments, Shape& shape) const {
  const PickleValue &size = pickle_.item(arguments, 2), &stride = pickle_.item(arguments, 3);
  if (size.kind != Kind::list || stride.kind != Kind::list || size.items.size() != stride.items.size())
    refuse(name, "has a shape without strides");
  if (size.items.size() > static_cast<size_t>(Shape::kMaxRank))
    refuse(name, "has {} dimensions, at most {} are supported", size.items.size(), int{Shape::kMaxRank});
  for (size_t i = 0; i < size.items.size(); ++i) shape.push_back(count(name, pickle_.item(size, i)));
  int64_t numel = 1;
  for (size_t i = size.items.size(); i-- > 0;) {
    const int64_t extent = shape[static_cast<int>(i)];
    if (extent > 1 && count(name, pickle_.item(stride, i)) != numel)
      refuse(name, "is a view whose elements are not in their order: save its .contiguous()");
    if (__builtin_mul_overflow(numel, extent, &numel))
      refuse(name, "has the absurd shape {}: the file is damaged", shape);
  }
  return numel;
}

// A safetensors file begins with the length of its header, which may be any bytes, and then a brace.
bool is_torch_archive(std::span<const std::byte> bytes) {
  return begins_with(bytes, kLocalHeader) && (bytes.size() <= 8 || bytes[8] != std::byte{'{'});
}

bool is_old_torch_file(std::span<const std::byte> bytes) {
  return begins_with(bytes, std::string_view("\x80\x02\x8a\x0al\xfc\x9c\x46\xf9 j\xa8P\x19", 14));
}

TorchTensors read_torch_archive(std::span<const std::byte> bytes, const std::string& source,
                                std::span<const std::string_view> more) {
  return TensorsOf(TorchArchive(bytes, source, more)).take();
}

}  // namespace nought
