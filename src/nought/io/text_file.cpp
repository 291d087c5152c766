#include "nought/io/text_file.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include <unistd.h>

#include "nought/base/error.h"
#include "nought/base/open_file.h"
#include "nought/io/byte_source.h"

namespace nought {

namespace fs = std::filesystem;

namespace {

constexpr size_t kBlock = size_t{1} << 18;

bool is_decoded_file(const MappedFile& file) {
  const std::string_view beginning = file.text().substr(0, 4);
  return is_decoded(std::span(beginning.data(), beginning.size()));
}

/// A file in the temporary folder, whose name is gone with this.
class TemporaryFile {
 public:
  TemporaryFile()
      : name_((fs::temp_directory_path() / "nought_text_XXXXXX").string()), descriptor_(::mkstemp(name_.data())) {
    require<IoError>(descriptor_ >= 0, "{}: cannot create: {}", name_, std::strerror(errno));
  }
  ~TemporaryFile() {
    ::close(descriptor_);
    ::unlink(name_.c_str());
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  void write(std::string_view bytes) const {
    const int reason = write_all(descriptor_, bytes);
    require<IoError>(reason == 0, "cannot write {}: {}: TMPDIR names another folder", name_, std::strerror(reason));
  }
  const std::string& name() const { return name_; }

 private:
  std::string name_;
  int descriptor_;
};

/// Calls f(bytes) for all that a file holds, block by block.
template <class F>
void for_each_block(const fs::path& file, F&& f) {
  const auto source = open_bytes(file);
  std::vector<char> block(kBlock);
  while (const size_t count = source->read(block)) f(std::string_view(block.data(), count));
}

}  // namespace

std::shared_ptr<const MappedFile> map_text(const fs::path& file) {
  auto mapped = std::make_shared<MappedFile>(file);
  if (!is_decoded_file(*mapped)) return mapped;
  const TemporaryFile plain;
  for_each_block(file, [&](std::string_view bytes) { plain.write(bytes); });
  return std::make_shared<MappedFile>(plain.name());
}

int64_t text_size(const fs::path& file) {
  if (const MappedFile mapped(file); !is_decoded_file(mapped)) return static_cast<int64_t>(mapped.text().size());
  int64_t bytes = 0;
  for_each_block(file, [&](std::string_view block) { bytes += static_cast<int64_t>(block.size()); });
  return bytes;
}

TextBeginning::TextBeginning(const fs::path& file, size_t limit) {
  mapped_ = std::make_unique<MappedFile>(file);
  if (!is_decoded_file(*mapped_)) return;
  mapped_.reset();
  const auto source = open_bytes(file);
  std::vector<char> block(std::min(limit, kBlock));
  while (const size_t count = held_.size() < limit ? source->read(block) : 0) held_.append(block.data(), count);
}

}  // namespace nought
