#include "nought/comm/shared_windows.h"

#include <atomic>
#include <chrono>
#include <filesystem>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "nought/comm/mpi_engine.h"

namespace nought {

/// From one writer to one reader, in the writer's window. Each side writes a cache line of its own.
struct SharedWindows::Mailbox {
  std::atomic<uint64_t> sent;
  alignas(64) std::array<Chunk, kSharedWindowSlots> ring;  // a slot holds at most one chunk for a reader
  alignas(64) std::atomic<uint64_t> taken;
};

namespace {

static_assert(std::atomic<uint64_t>::is_always_lock_free);

/// The address space that a file descriptor's memory is mapped to, or null.
std::shared_ptr<void> map_shared(int descriptor, int64_t bytes) {
  const auto length = static_cast<size_t>(bytes);
  void* address = mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (address == MAP_FAILED) return nullptr;
  return {address, [length](void* data) { munmap(data, length); }};
}

/// Anonymous memory of the first rank, which the others open through /proc: nothing is left behind by any end, and no
/// small /dev/shm limits it. Null on any rank that cannot.
std::shared_ptr<void> share_memory(MPI_Comm host, int rank, int64_t bytes) {
  std::array<int64_t, 3> source{getpid(), -1, std::chrono::steady_clock::now().time_since_epoch().count()};
  const auto name = [&] { return fmt::format("nought-{}-{}", source[0], source[2]); };
  if (rank == 0) {
    const int made = memfd_create(name().c_str(), MFD_CLOEXEC);
    if (made >= 0 && ftruncate(made, bytes) == 0) source[1] = made;
    if (made >= 0 && source[1] < 0) close(made);
  }
  check_mpi(MPI_Bcast(source.data(), 3, MPI_INT64_T, 0, host), "MPI_Bcast");
  auto descriptor = static_cast<int>(source[1]);
  if (rank != 0 && descriptor >= 0) {
    // In another container the same numbers may be another process's file: only the right name will do.
    const std::string path = fmt::format("/proc/{}/fd/{}", source[0], source[1]);
    std::error_code error;
    const bool found = std::filesystem::read_symlink(path, error).string().starts_with("/memfd:" + name());
    descriptor = found ? open(path.c_str(), O_RDWR | O_CLOEXEC) : -1;
  }
  std::shared_ptr<void> memory;
  if (descriptor >= 0) memory = map_shared(descriptor, bytes);
  check_mpi(MPI_Barrier(host), "MPI_Barrier");  // all have opened it, or never will
  if (descriptor >= 0) close(descriptor);
  return memory;
}

}  // namespace

std::shared_ptr<SharedWindows> SharedWindows::create(MPI_Comm host, const Context& context) {
  int rank = 0, size = 1;
  check_mpi(MPI_Comm_rank(host, &rank), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(host, &size), "MPI_Comm_size");
  if (size == 1) return nullptr;
  std::shared_ptr<void> memory = share_memory(host, rank, all_shared_windows_bytes(size));
  int shared = memory != nullptr, everywhere = 0;
  check_mpi(MPI_Allreduce(&shared, &everywhere, 1, MPI_INT, MPI_MIN, host), "MPI_Allreduce");
  if (!everywhere) return nullptr;
  std::shared_ptr<Buffer> buffer =
      context.memory->adopt(std::move(memory), all_shared_windows_bytes(size), Category::communication);
  return std::shared_ptr<SharedWindows>(new SharedWindows(std::move(buffer), rank, size));
}

SharedWindows::SharedWindows(std::shared_ptr<Buffer> memory, int rank, int size)
    : memory_(std::move(memory), 0, {all_shared_windows_bytes(size)}, DType::u8),
      rank_(rank),
      size_(size),
      slot_bytes_(shared_slot_bytes(size)) {}

SharedWindows::Mailbox& SharedWindows::mailbox(int writer, int reader) const {
  static_assert(sizeof(Mailbox) <= kMailboxBytes);
  // Fresh shared memory is zero, which is an empty mailbox.
  return *reinterpret_cast<Mailbox*>(memory_.raw() + window_of(writer) + reader * kMailboxBytes);
}

bool SharedWindows::is_read(const Reading& reading) const {
  return mailbox(rank_, reading.reader).taken.load(std::memory_order_acquire) >= reading.number;
}

bool SharedWindows::try_send(std::span<const OutgoingChunk> chunks) {
  std::vector<Reading>& readings = readings_[static_cast<size_t>(slot_)];
  while (!readings.empty()) {
    if (!is_read(readings.back())) return false;
    readings.pop_back();
  }
  const int64_t slots_begin = shared_window_bytes(size_) - kSharedWindowSlots * slot_bytes_;
  int64_t offset = slots_begin + slot_ * slot_bytes_;
  for (const OutgoingChunk& outgoing : chunks) {
    if (outgoing.data.numel() == 0 || outgoing.readers.empty()) continue;
    const Chunk chunk{offset, outgoing.data.bytes()};
    if (offset + chunk.bytes > slots_begin + (slot_ + 1) * slot_bytes_)
      fail("{} do not fit the rest of a slot of {}", outgoing.data.str(), slot_bytes_);
    stores_.copy(memory_.raw() + window_of(rank_) + offset, outgoing.data.raw(), static_cast<size_t>(chunk.bytes));
    offset += round_up(chunk.bytes, 64);
    for (const int reader : outgoing.readers) {
      Mailbox& box = mailbox(rank_, reader);
      const uint64_t number = box.sent.load(std::memory_order_relaxed);
      box.ring[number % kSharedWindowSlots] = chunk;
      box.sent.store(number + 1, std::memory_order_release);
      readings.push_back({reader, number + 1});
    }
  }
  if (!readings.empty()) slot_ = (slot_ + 1) % kSharedWindowSlots;
  return true;
}

Tensor SharedWindows::try_receive(int writer, DType dtype, int64_t numel) {
  const Mailbox& box = mailbox(writer, rank_);
  const uint64_t number = box.taken.load(std::memory_order_relaxed);
  if (box.sent.load(std::memory_order_acquire) == number) return {};
  const Chunk chunk = box.ring[number % kSharedWindowSlots];
  require<CommError>(chunk.bytes == numel * size_of(dtype),
                     "local rank {} sent {} bytes where {} were expected: ranks must issue the same calls", writer,
                     chunk.bytes, numel * size_of(dtype));
  const int64_t begin = window_of(writer) + chunk.offset;
  return memory_.flat(begin, begin + chunk.bytes).reinterpret(dtype);
}

void SharedWindows::release(int writer) {
  Mailbox& box = mailbox(writer, rank_);
  box.taken.store(box.taken.load(std::memory_order_relaxed) + 1, std::memory_order_release);
}

}  // namespace nought
