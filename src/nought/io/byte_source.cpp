#include "nought/io/byte_source.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include <zlib.h>
#include <zstd.h>

#include "nought/base/error.h"
#include "nought/io/parquet_source.h"

namespace nought {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kGzip = "\x1f\x8b";
constexpr std::string_view kZstandard = "\x28\xb5\x2f\xfd";

/// The file as it is.
class PlainSource final : public ByteSource {
 public:
  explicit PlainSource(const fs::path& path) : path_(path), file_(std::fopen(path.c_str(), "rb"), std::fclose) {
    std::error_code error;
    require<IoError>(!fs::is_directory(path, error), "{}: is a folder, expected a file", path.string());
    require<IoError>(file_ != nullptr, "{}: cannot open: {}", path.string(), std::strerror(errno));
  }
  size_t read(std::span<char> into) override {
    const size_t count = std::fread(into.data(), 1, into.size(), file_.get());
    require<IoError>(count == into.size() || !std::ferror(file_.get()), "{}: cannot read at offset {}: {}",
                     path_.string(), bytes_, std::strerror(errno));
    bytes_ += static_cast<int64_t>(count);
    return count;
  }
  int64_t file_bytes() const override { return bytes_; }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
  int64_t bytes_ = 0;
};

/// A buffer of compressed bytes in front of a decoder.
class CompressedInput {
 public:
  explicit CompressedInput(const fs::path& path) : file_(path), buffer_(size_t{1} << 16) {}
  /// Reads more if nothing is left. False at the end of the file.
  bool fill() {
    if (begin_ < end_) return true;
    begin_ = 0;
    end_ = file_.read(buffer_);
    return end_ > 0;
  }
  std::span<char> left() { return std::span(buffer_).subspan(begin_, end_ - begin_); }
  void take(size_t bytes) { begin_ += bytes; }
  int64_t position() const { return file_.file_bytes() - static_cast<int64_t>(end_ - begin_); }
  std::string name() const { return file_.path().string(); }

 private:
  PlainSource file_;
  std::vector<char> buffer_;
  size_t begin_ = 0, end_ = 0;
};

class GzipSource final : public ByteSource {
 public:
  explicit GzipSource(const fs::path& path) : input_(path) {
    require<IoError>(inflateInit2(&stream_, 15 + 16) == Z_OK, "{}: cannot start zlib", path.string());
  }
  ~GzipSource() override { inflateEnd(&stream_); }
  GzipSource(const GzipSource&) = delete;
  GzipSource& operator=(const GzipSource&) = delete;

  size_t read(std::span<char> into) override {
    size_t done = 0;
    while (done < into.size()) {
      if (!input_.fill()) {
        require<IoError>(between_, "{}: the gzip file is truncated at its byte {}", input_.name(), input_.position());
        break;
      }
      if (between_) inflateReset(&stream_);
      done += inflate_some(into.subspan(done));
    }
    return done;
  }
  int64_t file_bytes() const override { return input_.position(); }

 private:
  size_t inflate_some(std::span<char> into) {
    const std::span<char> left = input_.left();
    stream_.next_in = reinterpret_cast<Bytef*>(left.data());
    stream_.avail_in = static_cast<uInt>(left.size());
    stream_.next_out = reinterpret_cast<Bytef*>(into.data());
    stream_.avail_out = static_cast<uInt>(std::min(into.size(), size_t{1} << 30));
    const uInt room = stream_.avail_out;
    const int result = inflate(&stream_, Z_NO_FLUSH);
    input_.take(left.size() - stream_.avail_in);
    between_ = result == Z_STREAM_END;
    require<IoError>(between_ || result == Z_OK || result == Z_BUF_ERROR, "{}: no valid gzip data at byte {}{}{}",
                     input_.name(), input_.position(), stream_.msg ? ": " : "", stream_.msg ? stream_.msg : "");
    return room - stream_.avail_out;
  }

  CompressedInput input_;
  z_stream stream_{};
  bool between_ = false;  // behind a member, where the file may end
};

class ZstandardSource final : public ByteSource {
 public:
  explicit ZstandardSource(const fs::path& path) : input_(path), stream_(ZSTD_createDStream(), ZSTD_freeDStream) {
    require<IoError>(stream_ != nullptr, "{}: cannot start libzstd", path.string());
  }
  size_t read(std::span<char> into) override {
    ZSTD_outBuffer out{into.data(), into.size(), 0};
    while (out.pos < out.size) {
      const bool more = input_.fill();
      const std::span<char> left = input_.left();
      ZSTD_inBuffer in{left.data(), left.size(), 0};
      const size_t before = out.pos;
      if (!more && between_) break;
      const size_t result = ZSTD_decompressStream(stream_.get(), &out, &in);
      require<IoError>(!ZSTD_isError(result), "{}: no valid Zstandard data at byte {}: {}", input_.name(),
                       input_.position(), ZSTD_getErrorName(result));
      input_.take(in.pos);
      between_ = result == 0;
      require<IoError>(more || between_ || out.pos > before, "{}: the Zstandard file is truncated at its byte {}",
                       input_.name(), input_.position());
    }
    return out.pos;
  }
  int64_t file_bytes() const override { return input_.position(); }

 private:
  CompressedInput input_;
  std::unique_ptr<ZSTD_DStream, size_t (*)(ZSTD_DStream*)> stream_;
  bool between_ = false;  // behind a frame, where the file may end
};

bool begins_with(std::span<const char> bytes, std::string_view magic) {
  return std::string_view(bytes.data(), bytes.size()).starts_with(magic);
}

}  // namespace

bool is_decoded(std::span<const char> beginning) {
  return begins_with(beginning, kGzip) || begins_with(beginning, kZstandard) || begins_with(beginning, kParquet);
}

fs::path decoded_name(const fs::path& file) {
  const fs::path extension = file.extension();
  if (extension == ".parquet") return fs::path(file).replace_extension(".jsonl");
  return extension == ".gz" || extension == ".zst" ? fs::path(file).replace_extension() : file;
}

std::unique_ptr<ByteSource> open_bytes(const fs::path& file) {
  char beginning[4];
  const size_t count = PlainSource(file).read(beginning);
  if (begins_with({beginning, count}, kGzip)) return std::make_unique<GzipSource>(file);
  if (begins_with({beginning, count}, kZstandard)) return std::make_unique<ZstandardSource>(file);
  if (begins_with({beginning, count}, kParquet)) return std::make_unique<ParquetSource>(file);
  return std::make_unique<PlainSource>(file);
}

}  // namespace nought
