#include "nought/io/parquet_column.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include <snappy.h>
#include <zlib.h>
#include <zstd.h>

#include "nought/base/error.h"
#include "nought/io/parquet_encodings.h"
#include "nought/io/thrift_compact.h"

namespace nought {

namespace {

constexpr int64_t kMostPageBytes = int64_t{1} << 30;
constexpr int64_t kMostPageEntries = int64_t{1} << 26;

/// The format's numbers.
struct Codec {
  enum Number : int64_t { uncompressed, snappy_, gzip, lzo, brotli, lz4, zstd, lz4_raw };
};
struct Encoding {
  enum Number : int64_t {
    plain = 0,
    plain_dictionary = 2,
    rle = 3,
    delta_binary_packed = 5,
    delta_length_byte_array = 6,
    delta_byte_array = 7,
    rle_dictionary = 8,
    byte_stream_split = 9
  };
};

std::string codec_name(int64_t codec) {
  constexpr std::string_view kNames[] = {"none", "snappy", "gzip", "lzo", "brotli", "lz4", "zstd", "lz4_raw"};
  return codec >= 0 && codec < std::ssize(kNames) ? std::string(kNames[codec]) : fmt::format("number {}", codec);
}

void inflate_all(std::string_view stored, std::string& into) {
  z_stream stream{};
  require<IoError>(inflateInit2(&stream, 15 + 32) == Z_OK, "cannot start zlib");
  const std::unique_ptr<z_stream, int (*)(z_stream*)> ending(&stream, inflateEnd);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(stored.data()));
  stream.avail_in = static_cast<uInt>(stored.size());
  stream.next_out = reinterpret_cast<Bytef*>(into.data());
  stream.avail_out = static_cast<uInt>(into.size());
  const int result = inflate(&stream, Z_FINISH);
  require<IoError>(result == Z_STREAM_END && stream.avail_out == 0, "no valid gzip data{}{}", stream.msg ? ": " : "",
                   stream.msg ? stream.msg : "");
}

/// Fills `into`, whose size is that of what was compressed.
void decompress(int64_t codec, std::string_view stored, std::string& into) {
  if (codec == Codec::gzip) return inflate_all(stored, into);
  if (codec == Codec::zstd) {
    const size_t count = ZSTD_decompress(into.data(), into.size(), stored.data(), stored.size());
    require<IoError>(!ZSTD_isError(count), "no valid Zstandard data: {}", ZSTD_getErrorName(count));
    return require<IoError>(count == into.size(), "{} bytes where {} are expected", count, into.size());
  }
  require<IoError>(codec == Codec::snappy_,
                   "it is compressed by {}, and read are snappy, gzip and zstd: write it anew with one of these",
                   codec_name(codec));
  size_t size = 0;
  require<IoError>(snappy::GetUncompressedLength(stored.data(), stored.size(), &size) && size == into.size() &&
                       snappy::RawUncompress(stored.data(), stored.size(), into.data()),
                   "no valid snappy data");
}

/// A number of a page's description that is neither negative nor large.
size_t count_of(int64_t count, int64_t most, const char* what) {
  require<IoError>(0 <= count && count <= most, "{} {}", count, what);
  return static_cast<size_t>(count);
}

/// How many bytes a number has, or a value of fixed_bytes; 0 for others.
int64_t size_of(const ParquetColumn& column) {
  switch (column.type) {
    case ParquetType::int32:
    case ParquetType::float32:
      return 4;
    case ParquetType::int64:
    case ParquetType::float64:
      return 8;
    case ParquetType::fixed_bytes:
      return column.length;
    default:
      return 0;
  }
}

template <class T>
T stored_number(std::string_view bytes) {
  T number;
  std::memcpy(&number, bytes.data(), sizeof(number));
  return number;
}

}  // namespace

/// A page's description.
struct ParquetColumnReader::Page {
  enum Kind : int64_t { data = 0, index = 1, dictionary = 2, data_v2 = 3 };
  int64_t kind = 0;
  size_t unpacked_size = 0;
  std::string_view stored = {};
  ThriftValue header = {};  // of its kind
};

ParquetColumnReader::ParquetColumnReader(std::string_view file, const ParquetColumn& column, const ParquetChunk& chunk)
    : file_(file), column_(&column), codec_(chunk.codec), page_(chunk.begin), end_(chunk.end), entries_(chunk.values) {
  if (entries_ > 0) open_page();
}

void ParquetColumnReader::next() {
  if (has_value()) ++value_;
  ++at_;
  --entries_;
  if (at_ == in_page_ && entries_ > 0) open_page();
}

/// Reads pages up to one that has entries.
void ParquetColumnReader::open_page() {
  const size_t begin = page_;
  try {
    in_page_ = at_ = value_ = 0;
    while (in_page_ == 0) {
      require<IoError>(page_ < end_, "the pages end with {} values missing", entries_);
      if (!read_page()) continue;
      require<IoError>(static_cast<int64_t>(in_page_) <= entries_, "{} values where {} are expected", in_page_,
                       entries_);
    }
  } catch (const IoError& error) {
    fail<IoError>("column {}, the page at byte {}: {}", column_->path, page_ == end_ ? begin : page_, error.what());
  }
}

/// Reads a page and goes behind it. False if it holds no entries of rows.
bool ParquetColumnReader::read_page() {
  std::string_view bytes = file_.substr(page_, end_ - page_);
  const ThriftValue description = read_thrift(bytes);
  Page page{.kind = description.integer_of(1)};
  page.unpacked_size = count_of(description.integer_of(2), kMostPageBytes, "bytes");
  page.stored = take_bytes(bytes, count_of(description.integer_of(3), kMostPageBytes, "bytes"));
  if (page.kind == Page::dictionary) page.header = description.field(7), read_dictionary(page);
  if (page.kind == Page::data) page.header = description.field(5), read_data(page);
  if (page.kind == Page::data_v2) page.header = description.field(8), read_data(page);
  page_ = end_ - bytes.size();
  return page.kind == Page::data || page.kind == Page::data_v2;
}

/// `size` bytes, for which `stored` stands.
std::string_view ParquetColumnReader::unpacked(const Page& page, std::string_view stored, size_t size) {
  const bool is_packed =
      codec_ != Codec::uncompressed && (page.kind != Page::data_v2 || page.header.integer_of(7, 1) != 0);
  if (!is_packed) return take_bytes(stored, size);
  std::string& into = page.kind == Page::dictionary ? dictionary_bytes_ : page_bytes_;
  into.resize(size);
  if (size > 0) decompress(codec_, stored, into);
  return into;
}

void ParquetColumnReader::read_dictionary(const Page& page) {
  const size_t count = count_of(page.header.integer_of(1), kMostPageEntries, "entries");
  dictionary_ = plain_values(unpacked(page, page.stored, page.unpacked_size), count);
}

void ParquetColumnReader::read_data(const Page& page) {
  in_page_ = count_of(page.header.integer_of(1), kMostPageEntries, "values");
  const bool is_first = page.kind == Page::data;
  std::string_view bytes = is_first ? unpacked(page, page.stored, page.unpacked_size) : page.stored;
  read_levels(page, bytes);
  const auto present = std::count(definitions_.begin(), definitions_.end(), column_->most_definition);
  const size_t count = definitions_.empty() ? in_page_ : static_cast<size_t>(present);
  if (!is_first) {
    const size_t levels = page.stored.size() - bytes.size();
    require<IoError>(levels <= page.unpacked_size, "{} bytes of levels in {}", levels, page.unpacked_size);
    bytes = unpacked(page, bytes, page.unpacked_size - levels);
  }
  read_values(page.header.integer_of(is_first ? 2 : 4), bytes, count);
}

/// Takes the levels of a page away, which stand in front of its values.
void ParquetColumnReader::read_levels(const Page& page, std::string_view& bytes) {
  constexpr int kDefinitionSize = 5, kRepetitionSize = 6;  // fields of a page of the second kind, which says them
  const auto levels = [&](int most, int size_field, int encoding_field) -> std::vector<uint8_t> {
    if (page.kind == Page::data_v2) {
      const auto size = count_of(page.header.integer_of(size_field), kMostPageBytes, "bytes of levels");
      const std::string_view taken = take_bytes(bytes, size);
      return most > 0 ? decode_levels(taken, most, in_page_) : std::vector<uint8_t>();
    }
    if (most == 0) return {};
    require<IoError>(page.header.integer_of(encoding_field) == Encoding::rle,
                     "levels of the encoding {}, which is not read", page.header.integer_of(encoding_field));
    const auto size = stored_number<uint32_t>(take_bytes(bytes, sizeof(uint32_t)));
    return decode_levels(take_bytes(bytes, size), most, in_page_);
  };
  repetitions_ = levels(column_->most_repetition, kRepetitionSize, 4);
  definitions_ = levels(column_->most_definition, kDefinitionSize, 3);
}

void ParquetColumnReader::read_values(int64_t encoding, std::string_view bytes, size_t count) {
  values_.clear();
  indices_.clear();
  const bool is_integer = column_->type == ParquetType::int32 || column_->type == ParquetType::int64;
  const bool is_bytes = column_->type == ParquetType::byte_array || column_->type == ParquetType::fixed_bytes;
  if (encoding == Encoding::plain) {
    values_ = plain_values(bytes, count);
  } else if (encoding == Encoding::byte_stream_split && size_of(*column_) > 0) {
    values_ = plain_values(together(bytes, static_cast<size_t>(size_of(*column_)), count), count);
  } else if (encoding == Encoding::plain_dictionary || encoding == Encoding::rle_dictionary) {
    indices_ = decode_indices(bytes, dictionary_.size(), count);
  } else if (encoding == Encoding::rle && column_->type == ParquetType::boolean) {
    for (const uint8_t value : decode_booleans(bytes, count)) values_.push_back({.integer = value});
  } else if (encoding == Encoding::delta_binary_packed && is_integer) {
    for (const int64_t value : decode_deltas(bytes, count)) values_.push_back({.integer = value});
  } else if (encoding == Encoding::delta_length_byte_array && is_bytes) {
    values_ = byte_values(bytes, count, false);
  } else if (encoding == Encoding::delta_byte_array && is_bytes) {
    values_ = byte_values(bytes, count, true);
  } else {
    fail<IoError>("values of the encoding {}, which is not read", encoding);
  }
  require<IoError>(values_.size() + indices_.size() == count, "{} values where {} are expected", values_.size(), count);
}

/// The bytes of `count` values of `size` bytes behind each other, whose first bytes came first, then their second ones.
std::string_view ParquetColumnReader::together(std::string_view bytes, size_t size, size_t count) {
  require<IoError>(bytes.size() / size >= count, "{} values of {} bytes in {}", count, size, bytes.size());
  joined_.resize(size * count);
  for (size_t i = 0; i < count; ++i)
    for (size_t k = 0; k < size; ++k) joined_[i * size + k] = bytes[k * count + i];
  return joined_;
}

std::vector<ParquetValue> ParquetColumnReader::plain_values(std::string_view bytes, size_t count) const {
  std::vector<ParquetValue> values;
  const ParquetType type = column_->type;
  const size_t least = type == ParquetType::boolean ? (count + 7) / 8 : count;  // a value has a byte, or a bit
  require<IoError>(least <= bytes.size() || type == ParquetType::fixed_bytes, "{} values in {} bytes", count,
                   bytes.size());
  values.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    ParquetValue value;
    if (type == ParquetType::boolean) value.integer = static_cast<int64_t>(bits_at(bytes, i, 1));
    if (type == ParquetType::int32) value.integer = stored_number<int32_t>(take_bytes(bytes, sizeof(int32_t)));
    if (type == ParquetType::int64) value.integer = stored_number<int64_t>(take_bytes(bytes, sizeof(int64_t)));
    if (type == ParquetType::int96) value.bytes = take_bytes(bytes, 12);
    if (type == ParquetType::float32) value.real = stored_number<float>(take_bytes(bytes, sizeof(float)));
    if (type == ParquetType::float64) value.real = stored_number<double>(take_bytes(bytes, sizeof(double)));
    if (type == ParquetType::byte_array)
      value.bytes = take_bytes(bytes, stored_number<uint32_t>(take_bytes(bytes, sizeof(uint32_t))));
    if (type == ParquetType::fixed_bytes) value.bytes = take_bytes(bytes, static_cast<uint64_t>(column_->length));
    values.push_back(value);
  }
  return values;
}

/// Values whose lengths come first; with `shares_beginnings`, each is what it adds to a beginning of the one before.
std::vector<ParquetValue> ParquetColumnReader::byte_values(std::string_view bytes, size_t count,
                                                           bool shares_beginnings) {
  std::vector<int64_t> shared;
  if (shares_beginnings) shared = decode_deltas(bytes, count);
  const std::vector<int64_t> lengths = decode_deltas(bytes, count);
  require<IoError>(!shares_beginnings || shared.size() == lengths.size(), "{} beginnings for {} values", shared.size(),
                   lengths.size());
  std::vector<ParquetValue> values;
  std::vector<size_t> ends;  // in joined_, which grows
  joined_.clear();
  for (size_t i = 0; i < lengths.size(); ++i) {
    const std::string_view rest = take_bytes(bytes, count_of(lengths[i], kMostPageBytes, "bytes of a value"));
    if (!shares_beginnings) {
      values.push_back({.bytes = rest});
      continue;
    }
    const size_t before = i > 1 ? ends[i - 2] : 0, length = i > 0 ? ends[i - 1] - before : 0;
    const size_t common = count_of(shared[i], static_cast<int64_t>(length), "bytes are shared with the value before");
    require<IoError>(joined_.size() + common + rest.size() <= static_cast<size_t>(kMostPageBytes),
                     "values of more than {} bytes", kMostPageBytes);
    joined_.append(joined_, before, common).append(rest);
    ends.push_back(joined_.size());
  }
  for (size_t i = 0; i < ends.size(); ++i) {
    const size_t begin = i > 0 ? ends[i - 1] : 0;
    values.push_back({.bytes = std::string_view(joined_).substr(begin, ends[i] - begin)});
  }
  return values;
}

ParquetValue ParquetColumnReader::value() const {
  return indices_.empty() ? values_[value_] : dictionary_[indices_[value_]];
}

}  // namespace nought
