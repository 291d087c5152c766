#include "nought/aio/swap_file.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <mutex>
#include <random>
#include <set>
#include <utility>

#include "support/guarded_device.h"
#include "support/message_of.h"
#include "support/size.h"
#include "support/swap_fault.h"
#include "support/temp_folder.h"
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "nought/aio/options.h"
#include "nought/aio/pieces.h"
#include "nought/aio/runner.h"
#include "nought/aio/swap_call.h"
#include "nought/aio/swap_lane.h"
#include "nought/base/error.h"

namespace nought::swap_file_test {
namespace {

using test::message_of;
using testing::HasSubstr;
using testing::ThrowsMessage;

/// A tensor of the host of so many random bytes, `shift` bytes behind a multiple of 4096.
Tensor random_bytes(Memory& memory, int64_t bytes, std::mt19937_64& random, int64_t shift = 0) {
  const Tensor whole = aligned(memory, {bytes + shift}, DType::u8, Category::optimizer);
  const Tensor tensor = whole.flat(shift, shift + bytes);
  std::generate_n(tensor.data<uint8_t>(), bytes, [&] { return static_cast<uint8_t>(random()); });
  return tensor;
}

bool same(const Tensor& a, const Tensor& b) {
  return a.bytes() == b.bytes() && std::memcmp(a.raw(), b.raw(), static_cast<size_t>(a.bytes())) == 0;
}

class SwapFiles : public testing::TestWithParam<AioBackend> {
 protected:
  void SetUp() override {
    if (GetParam() == AioBackend::io_uring && !uring_refusal().empty())
      GTEST_SKIP() << "io_uring is refused: " << uring_refusal();
  }
  AioOptions options() const {
    return {.block_size = 2 * kSwapGrid, .queue_depth = 3, .intra_op_parallelism = 2, .backend = GetParam()};
  }
  SwapSpace space(SwapFault fault = nullptr) { return space_of(options(), std::move(fault)); }
  SwapSpace space_of(const AioOptions& chosen, SwapFault fault = nullptr) {
    const test::ScopedSwapFault scope(std::move(fault));
    return SwapSpace(memory_, folder_.path(), "rank 3", chosen);
  }

  void write_and_read_at_random(SwapFile& file);
  /// Opens the one swap file that is open, although it has no name.
  std::filesystem::path path_of_file() const {
    for (const auto& each : std::filesystem::directory_iterator("/proc/self/fd"))
      if (std::error_code none; std::filesystem::read_symlink(each, none).string().starts_with(folder_.path().string()))
        return each.path();
    return {};
  }

  test::TempFolder folder_;
  std::shared_ptr<Memory> memory_ = Memory::create();
  std::mt19937_64 random_{7};
};

/// The result of a file system that refuses what bypasses the page cache, when it is tried.
int64_t refuse_direct(const SwapCall& call) { return call.offset == 0 && call.bytes == 4096 ? -EINVAL : call.result; }

void SwapFiles::write_and_read_at_random(SwapFile& file) {
  const int64_t size = file.bytes() - 5;
  Tensor shadow = random_bytes(*memory_, size, random_);
  file.write(0, shadow).wait();
  for (int i = 0; i < 200; ++i) {
    const auto below = [&](int64_t limit) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(limit)); };
    const int64_t grid = below(3) == 0 ? kSwapGrid : below(2) == 0 ? 4096 : 1;
    const int64_t offset = below(size) / grid * grid;
    const int64_t length = std::min(size - offset, 1 + below(below(2) == 0 ? 5 * kSwapGrid : 300));
    const int64_t shift = below(2) * below(64);
    if (below(2) == 0) {
      const Tensor from = random_bytes(*memory_, length, random_, shift);
      std::memcpy(shadow.raw() + offset, from.raw(), static_cast<size_t>(length));
      file.write(offset, from);
    } else {
      const Tensor into = random_bytes(*memory_, length, random_, shift);
      file.read(offset, into).wait();
      ASSERT_TRUE(same(into, shadow.flat(offset, offset + length))) << offset << " " << length;
    }
  }
  const Tensor whole = random_bytes(*memory_, size, random_, 64);
  file.read(0, whole).wait();
  EXPECT_TRUE(same(whole, shadow));
}

TEST_P(SwapFiles, bytes_at_random_offsets_and_of_random_lengths_come_back) {
  SwapSpace swap = space();
  SwapFile file(swap, "states", 20 * kSwapGrid, Category::optimizer);
  write_and_read_at_random(file);
}

TEST_P(SwapFiles, so_they_do_through_the_page_cache_where_the_file_system_cannot_bypass_it) {
  SwapSpace swap = space(refuse_direct);
  SwapFile file(swap, "states", 20 * kSwapGrid, Category::optimizer);
  EXPECT_FALSE(file.direct());
  write_and_read_at_random(file);
}

TEST_P(SwapFiles, a_write_that_fails_as_a_file_is_opened_is_told) {
  SwapSpace swap = space([](const SwapCall& call) { return call.bytes == 4096 ? int64_t{-EIO} : call.result; });
  EXPECT_THAT([&] { SwapFile(swap, "states", kSwapGrid, Category::optimizer); },
              ThrowsMessage<IoError>(HasSubstr("cannot write the swap file of rank 3 for states")));
  int interrupted = 0;
  SwapSpace again = space(
      [&](const SwapCall& call) -> int64_t { return call.bytes == 4096 && interrupted++ < 2 ? -EINTR : call.result; });
  EXPECT_TRUE(SwapFile(again, "states", kSwapGrid, Category::optimizer).direct());
}

NOUGHT_SIZE(medium);
TEST_P(SwapFiles, many_parts_go_beyond_the_depth_of_the_queue_and_all_options_give_the_same_bytes) {
  for (const bool overlap : {true, false})
    for (const bool single : {true, false})
      for (const auto& [depth, threads] : {std::pair(1, 1), std::pair(2, 3), std::pair(16, 1)}) {
        SwapSpace swap = space_of({.block_size = kSwapGrid,
                                   .queue_depth = depth,
                                   .intra_op_parallelism = threads,
                                   .single_submit = single,
                                   .overlap_events = overlap,
                                   .backend = GetParam()});
        SwapFile file(swap, "states", 80 * kSwapGrid, Category::optimizer);
        std::vector<SwapPart> from, into;
        for (int64_t i = 0; i < 40; ++i) {
          const int64_t bytes = i % 3 == 0 ? 2 * kSwapGrid : 1 + static_cast<int64_t>(random_() % (2 * kSwapGrid));
          from.push_back({2 * i * kSwapGrid, random_bytes(*memory_, bytes, random_)});
          into.push_back({2 * i * kSwapGrid, random_bytes(*memory_, bytes, random_)});
        }
        file.write(from).wait();
        file.read(into).wait();
        for (size_t i = 0; i < from.size(); ++i) ASSERT_TRUE(same(from[i].tensor, into[i].tensor)) << i;
      }
}

TEST_P(SwapFiles, neighbours_within_a_stretch_are_merged_whatever_their_order) {
  SwapSpace swap = space();
  SwapFile file(swap, "states", 4 * kSwapGrid, Category::optimizer);
  Tensor shadow = random_bytes(*memory_, 2000, random_);
  std::vector<SwapPart> parts;
  for (const int64_t begin : {1500, 0, 500, 1000}) parts.push_back({begin, shadow.flat(begin, begin + 500)});
  file.write(parts).wait();
  const Tensor into = random_bytes(*memory_, 2000, random_);
  file.read(0, into).wait();
  EXPECT_TRUE(same(into, shadow));
}

TEST_P(SwapFiles, calls_of_the_same_bytes_keep_their_order) {
  SwapSpace swap = space();
  SwapFile file(swap, "states", 4 * kSwapGrid, Category::optimizer);
  std::vector<Tensor> wanted, found;
  std::vector<Event> reads;
  for (int i = 0; i < 30; ++i) {
    wanted.push_back(random_bytes(*memory_, 3 * kSwapGrid, random_));
    found.push_back(random_bytes(*memory_, 3 * kSwapGrid, random_));
    file.write(0, wanted.back());
    reads.push_back(file.read(0, found.back()));
  }
  for (const Event& read : reads) read.wait();
  for (size_t i = 0; i < wanted.size(); ++i) EXPECT_TRUE(same(wanted[i], found[i])) << i;
}

TEST_P(SwapFiles, a_write_waits_for_what_makes_its_bytes_and_fails_with_it) {
  SwapSpace swap = space();
  SwapFile file(swap, "states", kSwapGrid, Category::optimizer);
  Stream late(Stream::Kind::late, "late");
  const Tensor from = random_bytes(*memory_, 4096, random_), into = random_bytes(*memory_, 4096, random_);
  const Event filled = late.submit([&] { std::memset(from.raw(), 5, 4096); });
  file.write({{0, from}}, filled);
  file.read(0, into).wait();
  EXPECT_EQ(into.data<uint8_t>()[0], 5);
  EXPECT_TRUE(same(from, into));

  const Event failed = late.submit([] { fail<DeviceError>("the kernel failed"); });
  const Event write = file.write({{0, from}}, failed);
  EXPECT_EQ(message_of<DeviceError>([&] { write.wait(); }), "the kernel failed");
  EXPECT_EQ(message_of<DeviceError>([&] { file.read(0, into).wait(); }), "the kernel failed");
}

TEST_P(SwapFiles, short_and_interrupted_transfers_go_on_where_they_ended_in_any_order_of_completion) {
  std::atomic<int> calls = 0, shortened = 0;
  std::mutex mutex;
  std::set<std::pair<bool, int64_t>> owed;  // writes and reads that must go on, by their ends
  SwapSpace swap = space([&](const SwapCall& call) -> int64_t {
    const int number = calls++;
    if (number == 0) return call.result;  // it tries the file system
    if (number % 7 == 2) ::usleep(2000);
    const std::lock_guard lock(mutex);
    const std::pair end(call.write, call.offset + call.bytes);
    owed.erase(end);
    if (number % 5 != 1 && (number % 3 != 0 || call.result <= 1)) return call.result;
    owed.insert(end);
    if (number % 5 == 1) return number % 2 == 0 ? -EINTR : -EAGAIN;
    ++shortened;
    return call.result / 3 + 1;
  });
  SwapFile file(swap, "states", 40 * kSwapGrid, Category::optimizer);
  for (int i = 0; i < 5; ++i) {
    const Tensor from = random_bytes(*memory_, 39 * kSwapGrid + 77, random_);
    const Tensor into = random_bytes(*memory_, 39 * kSwapGrid + 77, random_);
    file.write(0, from);
    file.read(0, into).wait();
    EXPECT_TRUE(same(from, into));
    EXPECT_TRUE(owed.empty());
  }
  EXPECT_GT(shortened, 50);
}

TEST_P(SwapFiles, a_disk_that_is_full_is_named_and_nothing_is_written_after_that) {
  std::atomic<int> writes = 0;
  SwapSpace swap = space([&](const SwapCall& call) -> int64_t {
    if (call.bytes == 4096) return call.result;  // it tries the file system
    return call.write && ++writes == 3 ? -ENOSPC : call.result;
  });
  SwapFile file(swap, "optimizer states", 16 * kSwapGrid, Category::optimizer);
  const Tensor from = random_bytes(*memory_, 2 * kSwapGrid, random_);
  for (int64_t i = 0; i < 2; ++i) file.write(2 * i * kSwapGrid, from).wait();
  const Event third = file.write(8 * kSwapGrid, from);
  const std::string message = message_of<IoError>([&] { third.wait(); });
  EXPECT_EQ(message, fmt::format("cannot write 131072 bytes at byte 524288 of the swap file of rank 3 for optimizer "
                                 "states in {}: No space left on device; free space, or name another folder "
                                 "(nvme_path), and resume from the last checkpoint",
                                 folder_.path().string()));
  EXPECT_EQ(message_of<IoError>([&] { file.write(0, from).wait(); }), message);
  EXPECT_EQ(message_of<IoError>([&] { file.read(0, from).wait(); }), message);
  EXPECT_EQ(writes, 3);
}

TEST_P(SwapFiles, an_error_of_the_drive_is_named) {
  SwapSpace swap = space([](const SwapCall& call) -> int64_t { return call.write ? call.result : -EIO; });
  SwapFile file(swap, "states", kSwapGrid, Category::optimizer);
  const Tensor tensor = random_bytes(*memory_, 4096, random_);
  file.write(0, tensor).wait();
  EXPECT_THAT(message_of<IoError>([&] { file.read(0, tensor).wait(); }),
              AllOf(HasSubstr("cannot read 4096 bytes at byte 0 of the swap file of rank 3 for states in"),
                    HasSubstr("Input/output error; check the drive")));
}

TEST_P(SwapFiles, transfers_that_never_move_end) {
  SwapSpace swap = space([](const SwapCall&) -> int64_t { return -EAGAIN; });  // also where it is tried: no O_DIRECT
  SwapFile file(swap, "states", kSwapGrid, Category::optimizer);
  const Tensor tensor = random_bytes(*memory_, 4096, random_);
  EXPECT_THAT(message_of<IoError>([&] { file.write(0, tensor).wait(); }),
              HasSubstr("Resource temporarily unavailable"));
}

TEST_P(SwapFiles, a_file_that_became_shorter_is_named) {
  for (const int64_t left : {int64_t{0}, kSwapGrid, kSwapGrid + 100}) {
    SwapSpace swap = space();
    SwapFile file(swap, "states", 8 * kSwapGrid, Category::optimizer);
    const Tensor tensor = random_bytes(*memory_, 8 * kSwapGrid, random_);
    file.write(0, tensor).wait();
    ASSERT_EQ(::truncate(path_of_file().c_str(), left), 0);
    EXPECT_THAT(message_of<IoError>([&] { file.read(0, tensor).wait(); }),
                HasSubstr(fmt::format("has {} bytes left of 524288: another program made it shorter", left)));
  }
}

TEST_P(SwapFiles, a_flipped_bit_is_found_wherever_it_is) {
  const int64_t size = 3 * kSwapGrid + 1000;
  for (const int64_t at : {int64_t{0}, kSwapGrid - 1, kSwapGrid, 3 * kSwapGrid + 999}) {
    SwapSpace swap = space();
    SwapFile file(swap, "states", size, Category::optimizer);
    const Tensor tensor = random_bytes(*memory_, size, random_);
    file.write(0, tensor).wait();
    const int other = ::open(path_of_file().c_str(), O_RDWR);
    ASSERT_GE(other, 0);
    char byte = 0;
    ASSERT_EQ(::pread(other, &byte, 1, at), 1);
    byte ^= 4;
    ASSERT_EQ(::pwrite(other, &byte, 1, at), 1);
    ::fsync(other);
    ::close(other);
    const int64_t begin = at / kSwapGrid * kSwapGrid, end = std::min(begin + kSwapGrid, size);
    EXPECT_THAT(message_of<IoError>([&] { file.read(0, tensor).wait(); }),
                HasSubstr(fmt::format("bytes {} to {} of the swap file of rank 3 for states in {} are not those that "
                                      "were written",
                                      begin, end, folder_.path().string())));
  }
}

TEST_P(SwapFiles, a_merge_finds_a_flipped_bit_before_it_writes) {
  SwapSpace swap = space();
  SwapFile file(swap, "states", kSwapGrid, Category::optimizer);
  const Tensor tensor = random_bytes(*memory_, 8192, random_);
  file.write(0, tensor).wait();
  ASSERT_EQ(::truncate(path_of_file().c_str(), 0), 0);
  ASSERT_EQ(::truncate(path_of_file().c_str(), kSwapGrid), 0);
  EXPECT_THAT(message_of<IoError>([&] { file.write(100, tensor.flat(0, 10)).wait(); }),
              HasSubstr("are not those that were written"));
}

TEST_P(SwapFiles, no_name_is_left_in_the_folder_and_nobody_can_lose_the_file) {
  SwapSpace swap = space();
  SwapFile file(swap, "states", kSwapGrid, Category::optimizer);
  EXPECT_THAT(test::names_in(folder_.path()), testing::IsEmpty());
  const Tensor from = random_bytes(*memory_, 5000, random_), into = random_bytes(*memory_, 5000, random_);
  std::filesystem::remove_all(folder_.path());
  file.write(0, from);
  file.read(0, into).wait();
  EXPECT_TRUE(same(from, into));
}

TEST_P(SwapFiles, bytes_are_counted_in_the_ledger_and_as_traffic) {
  const int64_t before = memory_->ledger().current(Category::workspace, Pool::host);
  {
    SwapSpace swap = space();
    EXPECT_EQ(memory_->ledger().current(Category::workspace, Pool::host) - before,
              2 * SwapLane::room_bytes(options()) + kDirectUnit);
    EXPECT_EQ(swap.backend(), GetParam());
    SwapFile file(swap, "states", kSwapGrid + 1, Category::optimizer);
    EXPECT_EQ(file.bytes(), 2 * kSwapGrid);
    EXPECT_EQ(memory_->ledger().current(Category::optimizer, Pool::file), 2 * kSwapGrid);
    const Tensor tensor = random_bytes(*memory_, 1000, random_);
    file.write({{0, tensor}, {kSwapGrid, tensor}}).wait();
    file.read(0, tensor).wait();
    const SwapTraffic traffic = swap.traffic();
    EXPECT_EQ(traffic.written, 2000);
    EXPECT_EQ(traffic.read, 1000);
    EXPECT_GT(traffic.write_seconds, 0);
    EXPECT_GT(traffic.read_seconds, 0);
  }
  EXPECT_EQ(memory_->ledger().current_total(Pool::file), 0);
  EXPECT_EQ(memory_->ledger().current(Category::workspace, Pool::host), before);
}

TEST_P(SwapFiles, what_was_never_written_or_lies_outside_is_refused) {
  SwapSpace swap = space();
  SwapFile file(swap, "states", kSwapGrid, Category::optimizer);
  const Tensor tensor = random_bytes(*memory_, 100, random_);
  EXPECT_THAT(message_of<ShapeError>([&] { file.read(kSwapGrid - 99, tensor); }), HasSubstr("u8[100] at byte 65437"));
  EXPECT_THAT(message_of<ShapeError>([&] { file.write(-1, tensor); }), HasSubstr("leaves the swap file of rank 3"));
  file.write(0, tensor).wait();
  EXPECT_THAT(message_of<ShapeError>([&] { file.read(1, tensor).wait(); }),
              HasSubstr("bytes 1 to 101 of the swap file of rank 3 for states in"));
}

TEST_P(SwapFiles, streams_of_a_device_may_run_late_and_its_tensors_are_copied_to_the_host_first) {
  const test::GuardedMemory guarded;
  SwapSpace swap(guarded.memory, folder_.path(), "rank 0", options());
  SwapFile file(swap, "states", 4 * kSwapGrid, Category::optimizer);
  const Tensor from = random_bytes(*guarded.memory, 9000, random_), into = random_bytes(*guarded.memory, 9000, random_);
  file.write(0, from);
  const Event read = file.read(0, into);
  EXPECT_FALSE(read.ready());
  read.wait();
  EXPECT_TRUE(same(from, into));
  const Tensor device = Tensor::empty(*guarded.memory, {100}, DType::u8, Category::optimizer);
  EXPECT_THAT(message_of<DeviceError>([&] { file.read(0, device); }), HasSubstr("u8[100] is no memory of the host"));
}

INSTANTIATE_TEST_SUITE_P(Backends, SwapFiles, testing::Values(AioBackend::threads, AioBackend::io_uring),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST(SwapSpace, a_memory_without_contents_counts_and_opens_nothing) {
  const auto memory = Memory::create_virtual();
  SwapSpace swap(memory, "/no such folder", "rank 0");
  SwapFile file(swap, "states", int64_t{1} << 40, Category::optimizer);
  EXPECT_EQ(memory->ledger().current(Category::optimizer, Pool::file), int64_t{1} << 40);
  const Tensor tensor = aligned(*memory, {int64_t{1} << 30}, DType::f32, Category::optimizer);
  file.write(0, tensor).wait();
  file.read(0, tensor).wait();
  EXPECT_EQ(swap.traffic().written, int64_t{4} << 30);
  EXPECT_EQ(swap.traffic().read, int64_t{4} << 30);
}

TEST(SwapSpace, a_folder_is_made_where_its_parent_is_there) {
  const test::TempFolder drive;
  SwapSpace swap(Memory::create(), drive / "offload", "rank 1 on another host");
  SwapFile(swap, "states", 5, Category::optimizer);
  EXPECT_TRUE(std::filesystem::is_directory(drive / "offload"));
}

TEST(SwapSpace, a_folder_that_is_missing_and_a_disk_that_is_too_small_are_named_at_the_start) {
  const auto memory = Memory::create();
  {
    SwapSpace swap(memory, "/no drive/folder", "rank 2");
    EXPECT_EQ(
        message_of<IoError>([&] { SwapFile(swap, "states", 5, Category::optimizer); }),
        "cannot make the swap file of rank 2 for states in /no drive/folder: No such file or directory; create the "
        "folder, or name another one (nvme_path)");
  }
  const test::TempFolder folder;
  SwapSpace swap(memory, folder.path(), "rank 2");
  EXPECT_THAT(message_of<IoError>([&] { SwapFile(swap, "states", int64_t{1} << 60, Category::optimizer); }),
              AllOf(HasSubstr("cannot reserve 1024.0 PiB for the swap file of rank 2 for states in"),
                    HasSubstr(": No space left on device, "), HasSubstr(" are free there; free space, or")));
  // A file system that refuses in the end, of a limit on the size of files.
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{.rlim_cur = 1 << 20, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string message =
      message_of<IoError>([&] { SwapFile(swap, "states", int64_t{2} << 20, Category::optimizer); });
  ::setrlimit(RLIMIT_FSIZE, &before);
  ::signal(SIGXFSZ, handler);
  EXPECT_THAT(message, HasSubstr(": File too large, "));
  EXPECT_THAT(test::names_in(folder.path()), testing::IsEmpty());
  EXPECT_EQ(memory->ledger().current_total(Pool::file), 0);
}

TEST(SwapSpace, options_that_are_out_of_range_are_refused) {
  const auto memory = Memory::create();
  const auto refused = [&](const AioOptions& options) {
    return message_of<ConfigError>([&] { SwapSpace(memory, "/tmp", "rank 0", options); });
  };
  EXPECT_EQ(refused({.block_size = 1000}), "aio.block_size must be a multiple of 65536, got 1000");
  EXPECT_EQ(refused({.queue_depth = 0}), "aio.queue_depth must be 1 to 1024, got 0");
  EXPECT_EQ(refused({.intra_op_parallelism = 65}), "aio.intra_op_parallelism must be 1 to 64, got 65");
}

/// Makes a system call fail with this error in all threads of this process, as a container's seccomp profile does.
void forbid(unsigned call, int error) {
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<unsigned>(error)),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog filter{.len = static_cast<unsigned short>(std::size(program)), .filter = program};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      ::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &filter) != 0)
    std::_Exit(2);
}

/// In a process of its own: 0 if threads work where io_uring is forbidden, and one line says why.
void use_forbidden_io_uring(int error, const std::string& reason) {
  forbid(SYS_io_uring_setup, error);
  const auto memory = Memory::create();
  const test::TempFolder folder;
  std::mt19937_64 random(1);
  const Tensor from = random_bytes(*memory, 10000, random), into = random_bytes(*memory, 10000, random);
  bool right = false;
  {
    SwapSpace swap(memory, folder.path(), "rank 0");
    SwapFile file(swap, "states", 10000, Category::optimizer);
    file.write(0, from);
    file.read(0, into).wait();
    right = same(from, into) && swap.backend() == AioBackend::threads && swap.note().find(reason) != std::string::npos;
  }
  const std::string asked =
      message_of<IoError>([&] { SwapSpace(memory, folder.path(), "rank 0", {.backend = AioBackend::io_uring}); });
  std::filesystem::remove_all(folder.path());
  std::_Exit(right && asked.starts_with("io_uring cannot be used: ") ? 0 : 1);
}

/// In a process of its own: 0 if `f` fails with an IoError that holds each of the texts.
template <class F>
[[noreturn]] void expect_refused(F&& f, const std::vector<std::string>& texts) {
  const std::string message = message_of<IoError>(f);
  for (const std::string& text : texts)
    if (message.find(text) == std::string::npos) std::fprintf(stderr, "%s\n", message.c_str()), std::_Exit(1);
  std::_Exit(0);
}

TEST(SwapSpace, a_name_that_cannot_be_removed_is_told) {
  const test::TempFolder folder;
  const auto open = [&] {
    forbid(SYS_unlink, EPERM), forbid(SYS_unlinkat, EPERM);
    const auto memory = Memory::create();
    SwapSpace swap(memory, folder.path(), "rank 0", {.backend = AioBackend::threads});
    SwapFile(swap, "states", 10000, Category::optimizer);
  };
  EXPECT_EXIT(
      expect_refused(open, {"cannot remove the name of the swap file of rank 0", "/nought-swap-", "not permitted"}),
      testing::ExitedWithCode(0), "");
}

TEST(SwapSpace, io_uring_that_takes_nothing_names_the_file) {
  if (!uring_refusal().empty()) GTEST_SKIP() << "it is refused here: " << uring_refusal();
  const test::TempFolder folder;
  const auto write = [&] {
    const auto memory = Memory::create();
    std::mt19937_64 random(1);
    const Tensor from = random_bytes(*memory, 10000, random);
    SwapSpace swap(memory, folder.path(), "rank 0", {.backend = AioBackend::io_uring});
    SwapFile file(swap, "states", 10000, Category::optimizer);
    forbid(SYS_io_uring_enter, EPERM);
    file.write(0, from).wait();
  };
  EXPECT_EXIT(expect_refused(write, {"io_uring does not take reads and writes of the swap file of rank 0 for states"}),
              testing::ExitedWithCode(0), "");
}

TEST(SwapSpace, where_io_uring_is_forbidden_threads_read_and_write) {
  if (!uring_refusal().empty()) GTEST_SKIP() << "it is refused here already: " << uring_refusal();
  EXPECT_EXIT(use_forbidden_io_uring(EPERM, "the system forbids it (the sysctl kernel.io_uring_disabled"),
              testing::ExitedWithCode(0), "");
  EXPECT_EXIT(use_forbidden_io_uring(ENOSYS, "the kernel has none"), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace nought::swap_file_test
