#include "nought/aio/swap_file.h"

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <mutex>
#include <optional>
#include <utility>

#include <unistd.h>

#include "nought/aio/swap_lane.h"
#include "nought/base/error.h"
#include "nought/base/math.h"
#include "nought/tensor/stream.h"

namespace nought {

Tensor aligned(Memory& memory, const Shape& shape, DType dtype, Category category, Pool pool) {
  const int64_t bytes = shape.numel() * size_of(dtype);
  const auto buffer = memory.allocate(bytes + kDirectUnit, category, pool);
  const auto address = std::bit_cast<uintptr_t>(buffer->data());
  return Tensor(buffer,
                static_cast<int64_t>(round_up(static_cast<int64_t>(address % kDirectUnit), kDirectUnit) -
                                     static_cast<int64_t>(address % kDirectUnit)),
                shape, dtype);
}

// --- SwapSpace ---

namespace {

struct Seam {
  std::mutex mutex;
  SwapFault fault;
};
Seam& seam() {
  static Seam seam;
  return seam;
}

SwapFault present_fault() {
  std::lock_guard lock(seam().mutex);
  return seam().fault;
}

}  // namespace

SwapFault exchange_swap_fault(SwapFault fault) {
  std::lock_guard lock(seam().mutex);
  return std::exchange(seam().fault, std::move(fault));
}

struct SwapSpace::State {
  /// One direction.
  struct Queue {
    std::unique_ptr<SwapLane> lane;
    std::shared_ptr<Stream> stream;  // goes before the lane does
    int64_t bytes = 0;
    double seconds = 0;
  };

  const std::shared_ptr<Memory> memory;
  const std::filesystem::path folder;
  const std::string owner;
  const AioOptions options;
  const SwapFault fault = present_fault();
  AioBackend backend = AioBackend::threads;
  std::string note;
  Tensor room;
  std::mutex mutex;                             // of the figures of the queues, and of what follows
  std::array<Queue, 2> queues;                  // of reads, of writes
  int under_way = 0;                            // calls
  std::chrono::steady_clock::time_point since;  // some are
  double seconds = 0;                           // in which some were
  std::exception_ptr failure;

  State(std::shared_ptr<Memory> of, std::filesystem::path where, std::string whose, const AioOptions& chosen)
      : memory(std::move(of)), folder(std::move(where)), owner(std::move(whose)), options(chosen) {}
  void open();
  void make_lanes(AioBackend by);
  Queue& queue(bool write) { return queues[write ? 1 : 0]; }
  /// Counts a call that begins (+1) or ends (-1).
  void count(int change) {
    const auto now = std::chrono::steady_clock::now();
    if (under_way == 0) since = now;
    under_way += change;
    if (under_way == 0) seconds += std::chrono::duration<double>(now - since).count();
  }
  /// On the stream of the direction: waits for `before`, then reads or writes.
  void carry_out(OpenSwap& file, const std::vector<SwapPart>& parts, bool write, const std::vector<Event>& before);
};

void SwapSpace::State::open() {
  const auto within = [](const char* key, int64_t value, int64_t most) {
    require<ConfigError>(1 <= value && value <= most, "aio.{} must be 1 to {}, got {}", key, most, value);
  };
  within("block_size", options.block_size, kLargestSwapBlock);
  within("queue_depth", options.queue_depth, kMostSwapDepth);
  within("intra_op_parallelism", options.intra_op_parallelism, kMostSwapThreads);
  require<ConfigError>(options.block_size % kSwapGrid == 0, "aio.block_size must be a multiple of {}, got {}",
                       kSwapGrid, options.block_size);
  room = aligned(*memory, {2 * SwapLane::room_bytes(options)}, DType::u8, Category::workspace);
  if (memory->is_virtual()) return;
  if (options.backend != AioBackend::threads) {
    try {
      return make_lanes(AioBackend::io_uring);
    } catch (const IoError& error) {
      require<IoError>(options.backend == AioBackend::automatic, "io_uring cannot be used: {}", error.what());
      note = fmt::format("files are read and written by threads, as io_uring cannot be used: {}", error.what());
    }
  }
  make_lanes(AioBackend::threads);
}

void SwapSpace::State::make_lanes(AioBackend by) {
  const int64_t room_bytes = SwapLane::room_bytes(options);
  for (const bool write : {false, true}) {
    const std::string name = write ? "nought-write" : "nought-read";
    queue(write).lane =
        std::make_unique<SwapLane>(options, by, write, room.raw() + (write ? room_bytes : 0), fault, name);
  }
  for (const bool write : {false, true})
    queue(write).stream = memory->device().make_host_stream(write ? "nought-write" : "nought-read");
  backend = by;
}

void SwapSpace::State::carry_out(OpenSwap& file, const std::vector<SwapPart>& parts, bool write,
                                 const std::vector<Event>& before) {
  bool counted = false;
  try {
    for (const Event& event : before) event.wait();
    {
      std::lock_guard lock(mutex);
      if (failure) std::rethrow_exception(failure);
      count(+1);
      counted = true;
    }
    const auto start = std::chrono::steady_clock::now();
    std::vector<SwapPiece> pieces;
    for (const SwapPart& part : parts) cut(file, part, write, options.block_size, pieces);
    queue(write).lane->run(pieces);
    std::lock_guard lock(mutex);
    count(-1);
    queue(write).seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  } catch (...) {
    std::lock_guard lock(mutex);
    if (counted) count(-1);
    if (!failure) failure = std::current_exception();
    throw;
  }
}

SwapSpace::SwapSpace(std::shared_ptr<Memory> memory, std::filesystem::path folder, std::string owner,
                     AioOptions options)
    : state_(std::make_shared<State>(std::move(memory), std::move(folder), std::move(owner), options)) {
  state_->open();
}

SwapSpace::~SwapSpace() = default;

const std::filesystem::path& SwapSpace::folder() const { return state_->folder; }
AioBackend SwapSpace::backend() const { return state_->backend; }
const std::string& SwapSpace::note() const { return state_->note; }

SwapTraffic SwapSpace::traffic() const {
  std::lock_guard lock(state_->mutex);
  const auto& [read, write] = state_->queues;
  return {.read = read.bytes,
          .written = write.bytes,
          .read_seconds = read.seconds,
          .write_seconds = write.seconds,
          .seconds = state_->seconds};
}

// --- SwapFile ---

struct SwapFile::State {
  /// A call that may be under way, and the stretches that it touches.
  struct Call {
    bool write;
    std::vector<Interval> stretches;
    Event event;
  };

  std::shared_ptr<SwapSpace::State> space;
  std::string name;
  int64_t bytes = 0;
  Category category = Category::optimizer;
  std::optional<OpenSwap> file = {};  // not on a Memory without contents
  std::vector<Call> calls = {};       // under the mutex of the space

  State(std::shared_ptr<SwapSpace::State> shared, const std::string& purpose, int64_t size, Category kind)
      : space(std::move(shared)),
        name(fmt::format("the swap file of {} for {} in {}", space->owner, purpose, space->folder.string())),
        bytes(round_up(size, kSwapGrid)),
        category(kind) {
    if (!space->memory->is_virtual()) file.emplace(space->folder, name, bytes, space->fault);
    space->memory->ledger().add(category, Pool::file, bytes);
  }
  ~State() { space->memory->ledger().remove(category, Pool::file, bytes); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  void check(const std::vector<SwapPart>& parts) const;
  /// The calls that must be done before one that touches these stretches, of the other direction: a direction's own
  /// calls keep their order.
  std::vector<Event> hazards(bool write, const std::vector<Interval>& stretches);
};

void SwapFile::State::check(const std::vector<SwapPart>& parts) const {
  for (const auto& [offset, tensor] : parts) {
    require<ShapeError>(0 <= offset && offset + tensor.bytes() <= bytes, "{} at byte {} leaves {}, which has {} bytes",
                        tensor, offset, name, bytes);
    require<DeviceError>(tensor.on_host(), "{} is no memory of the host, which {} is read into and written from",
                         tensor, name);
  }
}

std::vector<Event> SwapFile::State::hazards(bool write, const std::vector<Interval>& stretches) {
  std::erase_if(calls, [](const Call& call) { return call.event.ready(); });
  std::vector<Event> found;
  for (const Call& call : calls) {
    if (call.write == write) continue;
    const bool meets = std::any_of(stretches.begin(), stretches.end(), [&](const Interval& mine) {
      return std::any_of(call.stretches.begin(), call.stretches.end(),
                         [&](const Interval& other) { return !intersect(mine, other).empty(); });
    });
    if (meets) found.push_back(call.event);
  }
  return found;
}

SwapFile::SwapFile(SwapSpace& space, std::string purpose, int64_t bytes, Category category)
    : state_(std::make_shared<State>(space.state_, purpose, bytes, category)) {}

SwapFile::~SwapFile() {
  for (SwapSpace::State::Queue& queue : state_->space->queues)
    if (queue.stream) queue.stream->synchronize();
}

Event SwapFile::read(std::vector<SwapPart> parts, Event after) {
  return submit(/*write=*/false, std::move(parts), std::move(after));
}
Event SwapFile::write(std::vector<SwapPart> parts, Event after) {
  return submit(/*write=*/true, std::move(parts), std::move(after));
}

Event SwapFile::submit(bool write, std::vector<SwapPart> parts, Event after) {
  state_->check(parts);
  std::vector<Interval> stretches;
  int64_t bytes = 0;
  for (const auto& [offset, tensor] : parts) {
    bytes += tensor.bytes();
    stretches.push_back({offset / kSwapGrid * kSwapGrid, round_up(offset + tensor.bytes(), kSwapGrid)});
  }
  SwapSpace::State& space = *state_->space;
  std::lock_guard lock(space.mutex);
  SwapSpace::State::Queue& queue = space.queue(write);
  queue.bytes += bytes;
  if (!state_->file) {
    after.wait();
    return {};
  }
  std::vector<Event> before = state_->hazards(write, stretches);
  before.push_back(std::move(after));
  Event done = queue.stream->submit([state = state_, parts = std::move(parts), before = std::move(before), write] {
    state->space->carry_out(*state->file, parts, write, before);
  });
  state_->calls.push_back({write, std::move(stretches), done});
  return done;
}

int64_t SwapFile::bytes() const { return state_->bytes; }
bool SwapFile::direct() const { return state_->file && state_->file->direct(); }
const std::string& SwapFile::name() const { return state_->name; }

}  // namespace nought
