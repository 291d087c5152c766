#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include <fcntl.h>
#include <unistd.h>

#include "nought/base/json.h"
#include "nought/base/open_file.h"
#include "nought/bench/bench.h"
#include "nought/io/mapped_file.h"
#include "nought/io/safetensors_writer.h"

namespace nought {

namespace {

namespace fs = std::filesystem;

/// A file that is removed at last.
class Scratch {
 public:
  explicit Scratch(fs::path path) : path_(std::move(path)) {}
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() {
    std::error_code ignored;
    fs::remove(path_, ignored);
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

class Descriptor {
 public:
  Descriptor(const fs::path& path, int flags) : path_(path), fd_(open_file(path, flags, 0600)) {
    const int reason = errno;
    require<IoError>(fd_ >= 0, "cannot open {}: {}", path.string(), std::strerror(reason));
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { ::close(fd_); }

  void write_all(const Tensor& tensor) const {
    for (int64_t done = 0; done < tensor.bytes();)
      done += progress(::write(fd_, tensor.raw() + done, static_cast<size_t>(tensor.bytes() - done)));
    const int reason = ::fsync(fd_) == 0 ? 0 : errno;
    require<IoError>(reason == 0, "cannot write {}: {}", path_.string(), std::strerror(reason));
  }
  void read_all(const Tensor& tensor) const {
    for (int64_t done = 0; done < tensor.bytes();)
      done += progress(::read(fd_, tensor.raw() + done, static_cast<size_t>(tensor.bytes() - done)));
  }
  /// What was read or written before is not in memory any more.
  void forget() const { ::posix_fadvise(fd_, 0, 0, POSIX_FADV_DONTNEED); }

 private:
  int64_t progress(ssize_t bytes) const {
    const int reason = errno;
    require<IoError>(bytes > 0 || (bytes < 0 && reason == EINTR), "cannot read or write {}: {}", path_.string(),
                     std::strerror(reason));
    return std::max<int64_t>(bytes, 0);
  }

  fs::path path_;
  int fd_;
};

/// Opening a file of as many tensors as the checkpoint of a large model has, against parsing its header and keeping
/// nothing.
Figure bench_header(const Context& context, const fs::path& path, int samples) {
  constexpr int64_t kTensors = 50'000;
  Figure open{.name = "open of 50,000 tensors",
              .work = static_cast<double>(kTensors),
              .unit = "tensors",
              .limit_name = "JSON parser alone"};
  const Scratch file(path);
  const Tensor data = context.zeros({kTensors}, DType::u8);
  std::vector<std::pair<std::string, Tensor>> tensors;
  for (int64_t i = 0; i < kTensors; ++i)
    tensors.emplace_back(fmt::format("exp_avg_sq/model.layers.{}.mlp.experts.{}.down_proj.weight[{}:{}]", i / 512,
                                     i / 4 % 128, i % 4 << 20, (i % 4 + 1) << 20),
                         data.flat(i, i + 1));
  save_safetensors(path, tensors);
  const MappedFile mapped(path);
  const std::string_view header = mapped.text().substr(8, mapped.text().size() - 8 - kTensors);
  for (int i = 0; i < samples; ++i) {
    const double alone = seconds_of([&] { require<IoError>(Json::accept(header), "{}", path.string()); });
    open.limits.values.push_back(open.work / alone);
    open.seconds.values.push_back(seconds_of(
        [&] { require<IoError>(SafetensorsFile(path).entries().size() == tensors.size(), "{}", path.string()); }));
  }
  return open;
}

}  // namespace

std::vector<Figure> bench_io(const Context& context, const std::string& folder, int64_t bytes, int samples) {
  const Scratch plain(fs::path(folder) / "nought-bench.plain"), tensors(fs::path(folder) / "nought-bench.safetensors");
  Tensor data = context.empty({bytes / 4}, DType::f32);
  context.run(Fill{.x = data, .value = 1});
  const auto rate = [&](double seconds) { return static_cast<double>(data.bytes()) / seconds; };
  const auto forget = [](const fs::path& path) { Descriptor(path, O_RDONLY).forget(); };
  Figure write{.name = "write of tensors",
               .work = static_cast<double>(data.bytes()),
               .unit = "B",
               .limit_name = "plain write and fsync"};
  Figure read{
      .name = "read of tensors", .work = static_cast<double>(data.bytes()), .unit = "B", .limit_name = "plain read"};
  for (int i = 0; i < samples; ++i) {
    write.limits.values.push_back(
        rate(seconds_of([&] { Descriptor(plain.path(), O_CREAT | O_TRUNC | O_WRONLY).write_all(data); })));
    write.seconds.values.push_back(seconds_of([&] { save_safetensors(tensors.path(), {{"tensor", data}}); }));
    forget(plain.path()), forget(tensors.path());
    read.limits.values.push_back(rate(seconds_of([&] { Descriptor(plain.path(), O_RDONLY).read_all(data); })));
    read.seconds.values.push_back(seconds_of([&] {
      SafetensorsFile(tensors.path()).read("tensor", {0, data.numel()}, data);
    }));
  }
  return {write, read, bench_header(context, tensors.path(), samples)};
}

}  // namespace nought
