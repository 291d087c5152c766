#include "nought/corpus/repeats.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <numeric>

#include <unistd.h>
#include <xxhash.h>

#include "nought/base/error.h"
#include "nought/base/text.h"
#include "nought/corpus/characters.h"
#include "nought/corpus/disk_sort.h"
#include "nought/data/ordered_map.h"
#include "nought/io/mapped_file.h"

namespace nought {

namespace fs = std::filesystem;

namespace {

/// The hash of a part of a document. Parts with the same hash are equal, as far as 128 bits can say.
struct PartHash {
  uint64_t high = 0, low = 0;
  Repeat place;
  auto operator<=>(const PartHash&) const = default;
};

/// The parts of a batch's documents, by their numbers in the batch, and for MinHash the signatures and the lengths.
struct HashedBatch {
  std::vector<PartHash> parts;
  std::vector<uint32_t> signatures;  // those of all documents, one behind the other
  std::vector<uint64_t> lengths;     // how many bytes each text has
};

PartHash hash_of(std::string_view bytes, uint64_t document, uint64_t part) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {hash.high64, hash.low64, {document, part}};
}

void hash_lines(std::string_view text, uint64_t document, std::vector<PartHash>& parts) {
  uint64_t number = 0;
  for (size_t begin = 0; begin < text.size(); ++number) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = strip(text.substr(begin, end - begin));
    if (!line.empty()) parts.push_back(hash_of(line, document, number));
    begin = end + 1;
  }
}

/// The hashes of all stretches of `length` words: sums of the words' hashes times powers, which roll from one to the
/// next.
void hash_stretches(std::string_view text, uint64_t document, size_t length, std::vector<PartHash>& parts) {
  constexpr uint64_t kHigh = 0x9E3779B97F4A7C15U, kLow = 0xD6E8FEB86659FD93U;
  const std::vector<TextWord> words = words_with_places(text);
  if (words.size() < length) return;
  std::vector<XXH128_hash_t> hashes;
  hashes.reserve(words.size());
  for (const TextWord& word : words) hashes.push_back(XXH3_128bits(&text[word.begin], word.end - word.begin));
  uint64_t high = 0, low = 0, high_power = 1, low_power = 1;  // powers: of the word that leaves
  for (size_t i = 1; i < length; ++i) high_power *= kHigh, low_power *= kLow;
  for (size_t i = 0; i < hashes.size(); ++i) {
    if (i >= length) {
      high -= hashes[i - length].high64 * high_power;
      low -= hashes[i - length].low64 * low_power;
    }
    high = high * kHigh + hashes[i].high64;
    low = low * kLow + hashes[i].low64;
    if (i + 1 >= length) parts.push_back({high, low, {document, i + 1 - length}});
  }
}

/// Makes the parts of documents.
class Hasher {
 public:
  explicit Hasher(const DedupOptions& options) : options_(options), minhash_(options.minhash) {}

  HashedBatch hash(const DocumentBatch& batch) const {
    HashedBatch hashed;
    for_each_document(batch, [&](const Document& document) {
      const uint64_t number = hashed.lengths.size();
      hashed.lengths.push_back(document.text.size());
      if (options_.kind == DedupKind::exact) hashed.parts.push_back(hash_of(document.text, number, 0));
      if (options_.kind == DedupKind::lines) hash_lines(document.text, number, hashed.parts);
      if (options_.kind == DedupKind::substring)
        hash_stretches(document.text, number, static_cast<size_t>(options_.substring_words), hashed.parts);
      if (options_.kind == DedupKind::minhash) hash_bands(document.text, number, hashed);
    });
    return hashed;
  }

 private:
  void hash_bands(std::string_view text, uint64_t document, HashedBatch& hashed) const {
    const std::vector<uint64_t> signature = minhash_.signature(text);
    for (size_t band = 0; !signature.empty() && band < static_cast<size_t>(options_.minhash.bands); ++band)
      hashed.parts.push_back({minhash_.band_key(signature, band), band, {document, 0}});
    if (options_.minhash.similarity <= 0) return;
    const size_t before = hashed.signatures.size();
    hashed.signatures.resize(before + minhash_.size());
    std::transform(signature.begin(), signature.end(), hashed.signatures.begin() + static_cast<std::ptrdiff_t>(before),
                   [](uint64_t minimum) { return static_cast<uint32_t>(minimum); });
  }

  const DedupOptions& options_;
  MinHash minhash_;
};

/// A file that is written once, and is gone when this is.
class ScratchFile {
 public:
  explicit ScratchFile(fs::path path) : path_(std::move(path)), file_(std::fopen(path_.c_str(), "wb"), std::fclose) {
    require<IoError>(file_ != nullptr, "{}: cannot create: {}", path_.string(), std::strerror(errno));
  }
  ~ScratchFile() {
    std::error_code ignored;
    fs::remove(path_, ignored);
  }
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;

  template <class T>
  void write(const T* values, size_t count) {
    const bool good = std::fwrite(values, sizeof(T), count, file_.get()) == count;
    require<IoError>(good, "cannot write {}: {}", path_.string(), std::strerror(errno));
  }
  /// Gives what was written to the system.
  void flush() {
    require<IoError>(std::fflush(file_.get()) == 0, "cannot write {}: {}", path_.string(), std::strerror(errno));
  }
  void sync_as(const fs::path& name) {
    flush();
    require<IoError>(::fsync(fileno(file_.get())) == 0, "cannot write {}: {}", path_.string(), std::strerror(errno));
    fs::rename(path_, name);
  }
  std::FILE* get() const { return file_.get(); }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
};

/// Groups of documents, joined pair by pair (union-find).
class Clusters {
 public:
  explicit Clusters(size_t documents) : parents_(documents) { std::iota(parents_.begin(), parents_.end(), 0U); }
  uint32_t root(uint32_t document) {
    while (parents_[document] != document) document = parents_[document] = parents_[parents_[document]];
    return document;
  }
  /// The root is the least number, so that it does not depend on the order of pairs.
  void join(uint32_t a, uint32_t b) {
    a = root(a);
    b = root(b);
    parents_[std::max(a, b)] = std::min(a, b);
  }

 private:
  std::vector<uint32_t> parents_;
};

class RepeatsFinder {
 public:
  RepeatsFinder(const DedupOptions& options, const fs::path& file, const DedupObserver& observe)
      : options_(options),
        observe_(observe),
        file_(file),
        hashes_(file.parent_path(), ".nought-hashes", options.memory / 2),
        signatures_(file.parent_path() / ".nought-signatures"),
        out_(file.string() + ".partial") {}

  void find() {
    hash_documents();
    out_.write(&header_, 1);  // a place for what is known at the end
    const bool by_cluster = options_.kind == DedupKind::exact || options_.kind == DedupKind::minhash;
    by_cluster ? find_documents() : find_parts();
    require<IoError>(std::fseek(out_.get(), 0, SEEK_SET) == 0, "cannot write {}", file_.string());
    out_.write(&header_, 1);
    out_.sync_as(file_);
  }

 private:
  void hash_documents() {
    DocumentReader reader(options_.inputs, options_.documents);
    const Hasher hasher(options_);
    ordered_map(
        static_cast<int>(options_.threads), [&] { return reader.next(); },
        [&](const DocumentBatch& batch) { return hasher.hash(batch); },
        [&](const DocumentBatch&, const HashedBatch& hashed) {
          for (PartHash part : hashed.parts) {
            part.place.document += header_.documents;
            hashes_.add(part);
          }
          signatures_.write(hashed.signatures.data(), hashed.signatures.size());
          if (options_.keep_longest) lengths_.insert(lengths_.end(), hashed.lengths.begin(), hashed.lengths.end());
          header_.documents += hashed.lengths.size();
          observe_("reading", reader.file_bytes());
        });
    signatures_.flush();
  }

  /// Joins documents that share a hash, and leaves out all of a cluster but one.
  void find_documents() {
    const int64_t needed = static_cast<int64_t>(header_.documents) * (options_.keep_longest ? 24 : 12);
    require<ConfigError>(needed <= options_.memory / 2 && header_.documents < UINT32_MAX,
                         "--memory {}: {} documents need twice {}", format_bytes(options_.memory), header_.documents,
                         format_bytes(needed));
    Clusters clusters(header_.documents);
    std::optional<MappedFile> signatures;
    if (fs::file_size(signatures_.path()) > 0) signatures.emplace(signatures_.path());
    const auto* minima = signatures ? reinterpret_cast<const uint32_t*>(signatures->bytes().data()) : nullptr;
    PartHash key;
    std::vector<uint32_t> leaders;  // documents of this key, none like another
    observe_("comparing", 0);
    hashes_.for_each([&](const PartHash& each) {
      const auto document = static_cast<uint32_t>(each.place.document);
      if (leaders.empty() || each.high != key.high || each.low != key.low) {
        key = each;
        leaders.assign(1, document);
        return;
      }
      for (const uint32_t leader : leaders)
        if (!minima || are_similar(minima, leader, document)) return clusters.join(leader, document);
      if (leaders.size() < kLeaders) leaders.push_back(document);
    });
    leave_out(clusters);
  }

  /// Whether the share of minima that agree, which estimates the Jaccard index, is large enough.
  bool are_similar(const uint32_t* minima, uint32_t a, uint32_t b) const {
    const auto size = static_cast<size_t>(options_.minhash.bands * options_.minhash.rows);
    const uint32_t* first = minima + a * size;
    const uint32_t* second = minima + b * size;
    size_t equal = 0;
    for (size_t i = 0; i < size; ++i) equal += first[i] == second[i];
    return static_cast<double>(equal) >= options_.minhash.similarity * static_cast<double>(size);
  }

  void leave_out(Clusters& clusters) {
    const auto count = static_cast<uint32_t>(header_.documents);
    std::vector<uint32_t> sizes(count), kept(count);
    for (uint32_t i = 0; i < count; ++i) {
      const uint32_t root = clusters.root(i);
      if (sizes[root]++ == 0 || (options_.keep_longest && lengths_[i] > lengths_[kept[root]])) kept[root] = i;
    }
    for (uint32_t i = 0; i < count; ++i) {
      const uint32_t root = clusters.root(i);
      if (root == i && sizes[i] > 1) ++header_.clusters;
      header_.largest_cluster = std::max<uint64_t>(header_.largest_cluster, sizes[i]);
      const Repeat repeat{i, 0};
      if (kept[root] != i) out_.write(&repeat, 1);
    }
  }

  /// Leaves out all parts of a hash but the first, in the order of the documents.
  void find_parts() {
    DiskSort<Repeat> repeats(file_.parent_path(), ".nought-repeats", options_.memory / 4);
    PartHash key;
    bool any = false;
    observe_("comparing", 0);
    hashes_.for_each([&](const PartHash& each) {
      const bool repeated = std::exchange(any, true) && each.high == key.high && each.low == key.low;
      if (repeated) repeats.add(each.place);
      key = each;
    });
    repeats.for_each([&](const Repeat& repeat) { out_.write(&repeat, 1); });
  }

  // More documents of a key that are not like each other are compared with these alone.
  static constexpr size_t kLeaders = 64;

  const DedupOptions& options_;
  const DedupObserver& observe_;
  fs::path file_;
  DiskSort<PartHash> hashes_;
  ScratchFile signatures_, out_;
  std::vector<uint64_t> lengths_;
  RepeatsHeader header_;
};

}  // namespace

void find_repeats(const DedupOptions& options, const fs::path& file, const DedupObserver& observe) {
  RepeatsFinder(options, file, observe).find();
}

RepeatsReader::RepeatsReader(const fs::path& file) : file_(std::fopen(file.c_str(), "rb"), std::fclose) {
  const bool good = file_ != nullptr && std::fread(&header_, sizeof(header_), 1, file_.get()) == 1;
  require<IoError>(good, "{}: cannot read: remove it, and what it is about is found again", file.string());
  read_next();
}

bool RepeatsReader::read_next() {
  Repeat repeat;
  next_.reset();
  if (std::fread(&repeat, sizeof(repeat), 1, file_.get()) == 1) next_ = repeat;
  return next_.has_value();
}

std::vector<uint64_t> RepeatsReader::parts_of(uint64_t document) {
  std::vector<uint64_t> parts;
  while (next_ && next_->document < document) read_next();
  for (; next_ && next_->document == document; read_next()) parts.push_back(next_->part);
  return parts;
}

std::vector<TextWord> words_with_places(std::string_view text) {
  std::vector<std::string_view> words;
  split_at_spaces(text, words);
  std::vector<TextWord> places;
  places.reserve(words.size());
  for (const std::string_view word : words) {
    const auto begin = static_cast<size_t>(word.data() - text.data());
    places.push_back({begin, begin + word.size()});
  }
  return places;
}

}  // namespace nought
