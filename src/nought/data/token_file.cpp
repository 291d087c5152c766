#include "nought/data/token_file.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include <xxhash.h>

#include "nought/base/error.h"
#include "nought/io/atomic_file.h"
#include "nought/tensor/random.h"

namespace nought {

static_assert(std::endian::native == std::endian::little, "token files are little-endian");

namespace {

constexpr uint64_t kMaxCount = uint64_t{1} << 48;  // of tokens: keeps the sums of a malformed header from overflowing

constexpr uint64_t padded(uint64_t bytes) { return (bytes + 7) / 8 * 8; }

struct Places {
  uint64_t starts, mask, end;
};

Places places_of(const TokenFileHeader& header) {
  Places places{};
  places.starts = sizeof(TokenFileHeader) + padded(header.num_tokens * header.token_bytes);
  places.mask = places.starts + header.num_documents * sizeof(uint64_t);
  places.end = places.mask + (header.has_mask ? padded((header.num_tokens + 7) / 8) : 0);
  return places;
}

template <class T>
void append_bytes(std::string& bytes, std::span<const T> values) {
  bytes.append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
  bytes.resize(padded(bytes.size()), '\0');
}

}  // namespace

void TokenFileWriter::add(std::span<const int32_t> tokens, std::span<const uint8_t> targets) {
  constexpr std::array<size_t, 1> kOne{0};
  append(tokens, targets, tokens.empty() ? std::span<const size_t>() : kOne);
}

void TokenFileWriter::append(std::span<const int32_t> tokens, std::span<const uint8_t> targets,
                             std::span<const size_t> starts) {
  require<Error>(targets.empty() || targets.size() == tokens.size(), "{} tokens with a mask of {}", tokens.size(),
                 targets.size());
  require<Error>(tokens.empty() || !tokens_.empty() || (!starts.empty() && starts[0] == 0),
                 "tokens that continue no document");
  for (const size_t start : starts) starts_.push_back(tokens_.size() + start);
  for (size_t i = 0; i < tokens.size(); ++i) {
    const size_t position = tokens_.size() + i;
    if (position % 8 == 0) mask_.push_back(0);
    const bool target = targets.empty() || targets[i] != 0;
    if (target) mask_.back() = static_cast<uint8_t>(mask_.back() | 1u << position % 8);
    masked_ |= !target;
  }
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
}

void TokenFileWriter::write(const std::filesystem::path& file) const {
  for (const int32_t token : tokens_)
    require<Error>(0 <= token && token < vocab_size_, "{}: the token {} is not in [0, {})", file.string(), token,
                   vocab_size_);
  TokenFileHeader header;
  header.token_bytes = vocab_size_ <= 65536 ? 2 : 4;
  header.vocab_size = static_cast<uint64_t>(vocab_size_);
  header.num_tokens = tokens_.size();
  header.num_documents = starts_.size();
  header.tokenizer = tokenizer_;
  header.has_mask = masked_;
  std::string bytes(sizeof(header), '\0');
  bytes.reserve(places_of(header).end);
  if (header.token_bytes == 2) {
    append_bytes<uint16_t>(bytes, std::vector<uint16_t>(tokens_.begin(), tokens_.end()));
  } else {
    append_bytes<int32_t>(bytes, tokens_);
  }
  append_bytes<uint64_t>(bytes, starts_);
  if (masked_) append_bytes<uint8_t>(bytes, mask_);
  header.content = XXH3_64bits(bytes.data() + sizeof(header), bytes.size() - sizeof(header));
  std::memcpy(bytes.data(), &header, sizeof(header));
  write_text_atomically(file, bytes);
}

TokenFile::TokenFile(const std::filesystem::path& file) : name_(file.string()), file_(file) {
  const std::string_view bytes = file_.text();
  require<IoError>(bytes.size() >= sizeof(header_), "{}: is no token file: it has {} bytes", name_, bytes.size());
  std::memcpy(&header_, bytes.data(), sizeof(header_));
  require<IoError>(header_.magic == TokenFileHeader{}.magic, "{}: is no token file", name_);
  require_readable(file, int64_t{header_.version}, kTokenFileFormat);
  require<IoError>((header_.token_bytes == 2 || header_.token_bytes == 4) && header_.has_mask <= 1 &&
                       header_.num_tokens < kMaxCount && header_.num_documents <= header_.num_tokens &&
                       header_.vocab_size <= uint64_t{1} << 31,
                   "{}: has a malformed header", name_);
  const Places places = places_of(header_);
  require<IoError>(bytes.size() == places.end, "{}: has {} bytes, its header says {}: write it again", name_,
                   bytes.size(), places.end);
  tokens_ = bytes.data() + sizeof(header_);
  starts_ = reinterpret_cast<const uint64_t*>(bytes.data() + places.starts);
  if (has_mask()) mask_ = reinterpret_cast<const uint8_t*>(bytes.data() + places.mask);
  const bool sound =
      (header_.num_documents == 0) == (header_.num_tokens == 0) &&
      std::is_sorted(starts_, starts_ + header_.num_documents) &&
      (header_.num_documents == 0 || (starts_[0] == 0 && starts_[header_.num_documents - 1] < header_.num_tokens));
  require<IoError>(sound, "{}: its documents do not cover its tokens: write it again", name_);
}

template <class T>
void TokenFile::copy(int64_t begin, std::span<int32_t> out) const {
  const T* from = reinterpret_cast<const T*>(tokens_) + begin;
  uint64_t largest = 0;
  for (size_t i = 0; i < out.size(); ++i) {
    largest = std::max<uint64_t>(largest, from[i]);
    out[i] = static_cast<int32_t>(from[i]);
  }
  require<IoError>(largest < header_.vocab_size || out.empty(),
                   "{}: holds the token {}, its vocabulary has {}: write it again", name_, largest, header_.vocab_size);
}

void TokenFile::read(int64_t begin, std::span<int32_t> out) const {
  check_range(begin, out.size());
  header_.token_bytes == 2 ? copy<uint16_t>(begin, out) : copy<uint32_t>(begin, out);
}

void TokenFile::read_mask(int64_t begin, std::span<uint8_t> out) const {
  if (!mask_) return TokenStore::read_mask(begin, out);
  check_range(begin, out.size());
  for (size_t i = 0; i < out.size(); ++i) {
    const size_t position = static_cast<size_t>(begin) + i;
    out[i] = mask_[position / 8] >> position % 8 & 1;
  }
}

void TokenFile::document_starts(Interval range, std::vector<int64_t>& starts) const {
  const uint64_t* end = starts_ + header_.num_documents;
  const uint64_t* first = std::lower_bound(starts_, end, static_cast<uint64_t>(range.begin));
  for (; first != end && static_cast<int64_t>(*first) < range.end; ++first)
    starts.push_back(static_cast<int64_t>(*first));
}

uint64_t TokenFile::fingerprint(Interval range) const {
  const std::array<uint64_t, 3> key{header_.content, static_cast<uint64_t>(range.begin),
                                    static_cast<uint64_t>(range.end)};
  return stable_hash({reinterpret_cast<const char*>(key.data()), sizeof(key)});
}

}  // namespace nought
