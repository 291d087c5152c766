#include "nought/io/tensor_pieces.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "nought/base/checked_math.h"
#include "nought/base/error.h"
#include "nought/base/text.h"
#include "nought/io/convert.h"
#include "nought/io/strict_json.h"

namespace nought {

namespace {

constexpr int64_t kBlockBytes = int64_t{8} << 20;  // read before their pages are handed back

/// One past the last element; more than any tensor has where it cannot be said.
int64_t last_of(const TensorPiece& piece) {
  int64_t last = 0;
  const bool overflows = __builtin_mul_overflow(piece.rows - 1, piece.stride, &last) ||
                         __builtin_add_overflow(last, piece.begin, &last) ||
                         __builtin_add_overflow(last, piece.run, &last);
  return overflows ? std::numeric_limits<int64_t>::max() : last;
}

}  // namespace

size_t TensorPieces::open(const std::filesystem::path& file) {
  files_.push_back({file, std::make_shared<const MappedFile>(file)});
  return files_.size() - 1;
}

size_t TensorPieces::adopt_files(const TensorPieces& others) {
  const size_t first = files_.size();
  files_.insert(files_.end(), others.files_.begin(), others.files_.end());
  return first;
}

void TensorPieces::add_unsupported(const std::string& name, std::string_view dtype) {
  add_unread(name, fmt::format("has dtype {}, which is not supported", dtype));
}

void TensorPieces::add(TensorEntry entry, std::vector<TensorPiece> pieces) {
  std::erase_if(pieces, [](const TensorPiece& piece) { return piece.run == 0 || piece.rows == 0; });
  std::sort(pieces.begin(), pieces.end(), [](const TensorPiece& a, const TensorPiece& b) { return a.begin < b.begin; });
  Pieced tensor{std::move(entry), std::move(pieces)};
  tensor.entry.bytes = {0, checked_bytes(tensor)};
  const std::string name = tensor.entry.name;
  require<IoError>(tensors_.emplace(name, std::move(tensor)).second, "{}: tensor \"{}\" is there twice",
                   folder_.string(), excerpt(name));
}

int64_t TensorPieces::checked_bytes(const Pieced& tensor) const {
  const TensorEntry& entry = tensor.entry;
  const auto refuse = [&](const std::string& why) {
    fail<IoError>("{}: tensor \"{}\" {} {}", folder_.string(), excerpt(entry.name), entry.shape, why);
  };
  const std::optional<int64_t> bytes = checked_product(entry.element_size(), entry.shape);
  if (!bytes) refuse("has an absurd shape");
  const int64_t numel = entry.shape.numel();
  int64_t covered = 0;
  const bool flat =
      std::all_of(tensor.pieces.begin(), tensor.pieces.end(), [](const TensorPiece& piece) { return piece.rows == 1; });
  for (const TensorPiece& piece : tensor.pieces) {
    const std::optional<int64_t> size = checked_product(1, std::array{piece.run, piece.rows, entry.element_size()});
    const bool sane = piece.begin >= 0 && piece.run > 0 && piece.rows > 0 && piece.offset >= 0 &&
                      (piece.rows == 1 || piece.stride >= piece.run) && size && last_of(piece) <= numel;
    if (!sane) refuse("is described by a piece that leaves it");
    const int64_t room = std::ssize(this->bytes(piece.file)) - piece.offset, count = piece.run * piece.rows;
    if (*size > room)
      fail<IoError>("{}: truncated: a piece of tensor \"{}\" ends behind its {} bytes: copy the file again",
                    path(piece.file).string(), excerpt(entry.name), this->bytes(piece.file).size());
    if (flat && piece.begin != covered)
      refuse(fmt::format("has elements {} to {} {}", std::min(covered, piece.begin), std::max(covered, piece.begin),
                         piece.begin < covered ? "twice" : "in no file"));
    if (count > numel - covered) refuse(fmt::format("has pieces with more than its {} elements", numel));
    covered += count;
  }
  if (covered != numel) refuse(fmt::format("has {} of {} elements in the files: some are missing", covered, numel));
  return *bytes;
}

void TensorPieces::add_name(const std::string& name, const std::string& known) {
  if (const auto unread = unread_.find(known); unread != unread_.end()) return add_unread(name, unread->second);
  const auto found = tensors_.find(known);
  require<IoError>(found != tensors_.end(), "{}: tensor \"{}\" is said to be \"{}\", which is not there",
                   folder_.string(), excerpt(name), excerpt(known));
  Pieced tensor = found->second;
  tensor.entry.name = name;
  tensors_.emplace(name, std::move(tensor));
}

std::vector<TensorEntry> TensorPieces::entries() const {
  std::vector<TensorEntry> all;
  for (const auto& [name, tensor] : tensors_) all.push_back(tensor.entry);
  return all;
}

std::vector<std::string> TensorPieces::names() const {
  std::vector<std::string> all;
  for (const auto& [name, tensor] : tensors_) all.push_back(name);
  for (const auto& [name, why] : unread_) all.push_back(name);
  return all;
}

const TensorEntry* TensorPieces::find(std::string_view name) const {
  if (const auto found = tensors_.find(name); found != tensors_.end()) return &found->second.entry;
  if (const auto found = unread_.find(name); found != unread_.end())
    fail<IoError>("{}: tensor \"{}\" {}", folder_.string(), excerpt(found->first), found->second);
  return nullptr;
}

const TensorPieces::Pieced& TensorPieces::at(std::string_view name) const {
  if (find(name) == nullptr) {
    const std::vector<std::string> all = names();
    fail<IoError>("{}: no tensor \"{}\" among its {}{}", folder_.string(), excerpt(std::string(name)), all.size(),
                  did_you_mean(name, all));
  }
  return tensors_.find(name)->second;
}

void TensorPieces::read(std::string_view name, Interval elements, const Tensor& destination) const {
  const Pieced& tensor = at(name);
  require<ShapeError>(0 <= elements.begin && elements.begin <= elements.end &&
                          elements.end <= tensor.entry.shape.numel() && destination.numel() == elements.size(),
                      "{}: elements [{}, {}) of tensor \"{}\" {} do not fill {}", folder_.string(), elements.begin,
                      elements.end, excerpt(tensor.entry.name), tensor.entry.shape, destination);
  try {
    copy(tensor, elements, destination.dtype(), destination.raw());
  } catch (const ShapeError& error) {
    fail<IoError>("{}: tensor \"{}\": {}", folder_.string(), excerpt(tensor.entry.name), error.what());
  }
  *bytes_read_ += elements.size() * tensor.entry.element_size();
}

void TensorPieces::visit_bytes(std::string_view name,
                               const std::function<void(std::span<const std::byte>)>& visit) const {
  const Pieced& tensor = at(name);
  const int64_t size = size_of(tensor.entry.dtype), numel = tensor.entry.shape.numel(), block = kBlockBytes / size;
  std::vector<std::byte> bytes(static_cast<size_t>(std::min(numel, block) * size));
  for (int64_t begin = 0; begin < numel; begin += block) {
    const Interval elements{begin, std::min(numel, begin + block)};
    copy(tensor, elements, tensor.entry.dtype, bytes.data());
    visit(std::span(bytes).first(static_cast<size_t>(elements.size() * size)));
  }
}

bool TensorPieces::is_same_in(const TensorPieces& others, std::string_view name) const {
  const Pieced &tensor = at(name), &other = others.at(name);
  if (tensor.entry.shape != other.entry.shape || tensor.entry.dtype != other.entry.dtype) return false;
  const int64_t size = size_of(tensor.entry.dtype), numel = tensor.entry.shape.numel(), block = kBlockBytes / size;
  std::vector<std::byte> ours(static_cast<size_t>(std::min(numel, block) * size)), theirs(ours.size());
  for (int64_t begin = 0; begin < numel; begin += block) {
    const Interval elements{begin, std::min(numel, begin + block)};
    copy(tensor, elements, tensor.entry.dtype, ours.data());
    others.copy(other, elements, tensor.entry.dtype, theirs.data());
    if (std::memcmp(ours.data(), theirs.data(), static_cast<size_t>(elements.size() * size)) != 0) return false;
  }
  return true;
}

void TensorPieces::copy(const Pieced& tensor, Interval elements, DType to, std::byte* target) const {
  for (const TensorPiece& piece : tensor.pieces) {
    if (piece.begin >= elements.end) break;
    copy_piece(tensor.entry, piece, elements, to, target);
  }
}

void TensorPieces::copy_piece(const TensorEntry& entry, const TensorPiece& piece, Interval elements, DType to,
                              std::byte* target) const {
  const MappedFile& file = *files_[piece.file].file;
  const int64_t size = entry.element_size();
  int64_t released = piece.offset, done = piece.offset;  // bytes of the file that went back, and that were read
  const int64_t first = piece.rows == 1 ? 0 : std::max<int64_t>(0, (elements.begin - piece.begin) / piece.stride);
  for (int64_t row = first; row < piece.rows; ++row) {
    const int64_t at = piece.begin + row * piece.stride;
    if (at >= elements.end) break;
    const int64_t end = std::min(elements.end, at + piece.run);
    for (int64_t begin = std::max(elements.begin, at); begin < end;) {
      const int64_t count = std::min(end - begin, kBlockBytes / size);
      const int64_t offset = piece.offset + (row * piece.run + begin - at) * size;
      const std::byte* source = file.bytes().data() + offset;
      std::byte* out = target + (begin - elements.begin) * size_of(to);
      if (entry.packed) convert_elements(*entry.packed, source, to, out, count);
      if (!entry.packed) convert_elements(entry.dtype, source, to, out, count);
      begin += count;
      done = offset + count * size;
      if (done - released >= kBlockBytes) file.release({released, done}), released = done;
    }
  }
  if (done > released) file.release({released, done});
}

int64_t TensorPieces::file_bytes() const {
  int64_t total = 0;
  for (const File& each : files_) total += std::ssize(each.file->bytes());
  return total;
}

}  // namespace nought
