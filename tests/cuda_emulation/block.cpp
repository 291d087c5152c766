#include "cuda_emulation/block.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

namespace nought::emulation {

namespace {

thread_local Block* running_block = nullptr;
constexpr size_t kMostStatic = size_t{48} << 10;  // bytes of arrays that a block declares

std::string_view file_of(const Where& where) {
  const std::string_view path = where.file;
  return path.substr(path.rfind('/') + 1);
}

bool same(const Where& a, const Where& b) {
  return a.line == b.line && (a.file == b.file || std::string_view(a.file) == b.file);
}

}  // namespace

void arrange(std::vector<int>& numbers, int count, Order order, std::mt19937& random) {
  numbers.resize(static_cast<size_t>(count));
  std::iota(numbers.begin(), numbers.end(), 0);
  if (order == 1) std::reverse(numbers.begin(), numbers.end());
  if (order > 1) std::shuffle(numbers.begin(), numbers.end(), random);
}

std::vector<std::unique_ptr<Block::Thread>>& Block::kept_threads() {
  thread_local std::vector<std::unique_ptr<Thread>> threads;
  return threads;
}

void Block::run(const Size& grid, const Size& block, const Index& index, size_t dynamic_bytes, Order order,
                const std::function<void()>& body) {
  Block it(grid, block, index, dynamic_bytes, body);
  Block* const before = std::exchange(running_block, &it);
  try {
    it.run_all(order);
  } catch (...) {
    it.failure_ = std::current_exception();
  }
  running_block = before;
  if (it.failure_) std::rethrow_exception(it.failure_);
}

Block& Block::current() {
  require<KernelError>(running_block != nullptr, "device code runs outside of a kernel");
  return *running_block;
}

Block::Block(const Size& grid, const Size& block, const Index& index, size_t dynamic_bytes,
             const std::function<void()>& body)
    : grid_(grid),
      size_(block),
      index_(index),
      dynamic_bytes_(dynamic_bytes),
      body_(body),
      threads_(kept_threads()),
      warps_((block.count() + kWarp - 1) / kWarp),
      count_(static_cast<int>(block.count())) {
  while (std::ssize(threads_) < count_) threads_.push_back(std::make_unique<Thread>());
  for (int i = 0; i < count_; ++i) {
    Thread& thread = *threads_[static_cast<size_t>(i)];
    const auto number = static_cast<unsigned>(i);
    thread.block = this;
    thread.index = {number % size_.x, number / size_.x % size_.y, number / size_.x / size_.y};
    thread.state = State::ready;
    thread.copies.assign(1, {});
    thread.fiber.start(&Block::run_thread, &thread);
  }
}

void Block::run_thread(void* thread) {
  auto& self = *static_cast<Thread*>(thread);
  try {
    self.block->body_();
  } catch (...) {
    self.block->failure_ = std::current_exception();
  }
  self.state = State::ended;
}

void Block::run_all(Order order) {
  std::mt19937 random(order + index_.x);
  std::vector<int> numbers;
  while (true) {
    bool moved = false;
    arrange(numbers, count_, order, random);
    for (const int i : numbers) {
      Thread& thread = *threads_[static_cast<size_t>(i)];
      if (thread.state != State::ready) continue;
      running_ = i;
      thread.fiber.resume();
      moved = true;
      if (failure_) return;  // what the other threads hold is lost
    }
    if (release_warps() || release_barrier()) continue;
    if (!moved) break;
  }
  for (int i = 0; i < count_; ++i)
    if (threads_[static_cast<size_t>(i)]->state != State::ended) refuse_to_hang();
}

void Block::wait(State state, const Where& where) {
  Thread& thread = *threads_[static_cast<size_t>(running_)];
  thread.state = state;
  thread.where = where;
  thread.fiber.pause();
}

void Block::begin_copy(std::function<void()> copy) {
  threads_[static_cast<size_t>(running_)]->copies.back().push_back(std::move(copy));
}

void Block::end_group_of_copies() { threads_[static_cast<size_t>(running_)]->copies.emplace_back(); }

void Block::make_copies(size_t left) {
  auto& groups = threads_[static_cast<size_t>(running_)]->copies;
  while (groups.size() > left + 1) {
    for (const std::function<void()>& copy : groups.front()) copy();
    groups.erase(groups.begin());
  }
}

void Block::barrier(const Where& where) { wait(State::at_barrier, where); }

bool Block::release_barrier() {
  const Thread& first = *threads_[0];
  for (int i = 0; i < count_; ++i) {
    const Thread& thread = *threads_[static_cast<size_t>(i)];
    if (thread.state != State::at_barrier || !same(thread.where, first.where)) return false;
  }
  for (int i = 0; i < count_; ++i) threads_[static_cast<size_t>(i)]->state = State::ready;
  ++barriers_;
  return true;
}

const std::array<uint64_t, kWarp>& Block::exchange(uint32_t mask, uint64_t value, const Where& where, bool orders) {
  if ((mask >> lane() & 1u) == 0)
    fail<KernelError>("{}:{}: lane {} is not in its own mask {:#x}", file_of(where), where.line, lane(), mask);
  Warp& mine = warp();
  mine.brought[static_cast<size_t>(lane())] = value;
  threads_[static_cast<size_t>(running_)]->mask = mask;
  threads_[static_cast<size_t>(running_)]->orders = orders;
  wait(State::in_warp, where);
  return mine.given;
}

bool Block::release_warps() {
  bool released = false;
  for (int begin = 0; begin < count_; begin += kWarp) {
    Warp& each = warps_[static_cast<size_t>(begin / kWarp)];
    for (int leader = begin; leader < std::min(begin + kWarp, count_); ++leader) {
      const Thread& first = *threads_[static_cast<size_t>(leader)];
      if (first.state != State::in_warp) continue;
      bool complete = true;
      for (int lane = 0; lane < kWarp && complete; ++lane) {
        if ((first.mask >> lane & 1u) == 0) continue;
        const int i = begin + lane;
        if (i >= count_) return false;
        const Thread& thread = *threads_[static_cast<size_t>(i)];
        complete = thread.state == State::in_warp && thread.mask == first.mask && same(thread.where, first.where);
      }
      if (!complete) continue;
      for (int lane = 0; lane < kWarp; ++lane) {
        if ((first.mask >> lane & 1u) == 0) continue;
        each.given[static_cast<size_t>(lane)] = each.brought[static_cast<size_t>(lane)];
        threads_[static_cast<size_t>(begin + lane)]->state = State::ready;
      }
      if (first.orders) ++each.synchronisations;
      released = true;
    }
  }
  return released;
}

uint32_t Block::active_lanes() const {
  uint32_t lanes = 0;
  for (int lane = 0; lane < kWarp; ++lane) {
    const int i = running_ / kWarp * kWarp + lane;
    if (i < count_ && threads_[static_cast<size_t>(i)]->state != State::ended) lanes |= 1u << lane;
  }
  return lanes;
}

void Block::refuse_to_hang() const {
  int ended = 0;
  std::string places;
  for (int i = 0; i < count_; ++i) {
    const Thread& thread = *threads_[static_cast<size_t>(i)];
    if (thread.state == State::ended) {
      ++ended;
      continue;
    }
    const std::string place =
        fmt::format("{} in {}:{}", thread.state == State::at_barrier ? "at the barrier" : "of a warp",
                    file_of(thread.where), thread.where.line);
    if (places.find(place) == std::string::npos)
      places += fmt::format("{}thread {} waits {}", places.empty() ? "" : ", ", i, place);
  }
  fail<KernelError>("block {} of {} threads hangs: {}; {} have ended", index_.x, count_, places, ended);
}

// --- shared memory ---

SharedArray& Block::shared(const void* type, size_t element, size_t count, const Where& where) {
  const auto [found, is_new] = arrays_.try_emplace({type, where.line});
  SharedArray& array = found->second;
  if (is_new) {
    array.bytes.resize(element * count, std::byte{0xFF});
    array.shadows.resize(count);
    array.element = element;
    array.where = where;
    if (where.line != 0) shared_bytes_ += array.bytes.size();
    require<KernelError>(shared_bytes_ <= kMostStatic, "{}:{}: {} bytes of shared arrays, at most {}", file_of(where),
                         where.line, shared_bytes_, kMostStatic);
  }
  require<KernelError>(array.shadows.size() == count, "{}:{}: a shared array has {} elements and {}", file_of(where),
                       where.line, array.shadows.size(), count);
  return array;
}

/// True if what another thread did at these times is done for the thread that runs.
bool Block::in_order(int other, int64_t block_time, int64_t warp_time) const {
  if (other == running_ || block_time < barriers_) return true;
  if (other == Shadow::kSeveral) return false;
  const int warp_of_other = other >= 0 ? other / kWarp : Shadow::warp_of(other);
  if (warp_of_other != running_ / kWarp) return false;
  return warp_time < warps_[static_cast<size_t>(running_ / kWarp)].synchronisations;
}

void Block::refuse(const SharedArray& array, size_t i, std::string_view what, int other) const {
  const std::string who = other >= 0 ? fmt::format(" (thread {})", other) : "";
  fail<KernelError>("shared array of {}:{}: thread {} of block {} {} element {} of {}{}", file_of(array.where),
                    array.where.line, running_, index_.x, what, i, array.shadows.size(), who);
}

void Block::check_read(SharedArray& array, size_t i) {
  if (i >= array.shadows.size()) refuse(array, i, "reads", -1);
  Shadow& shadow = array.shadows[i];
  if (!shadow.is_initialised) refuse(array, i, "reads, before it is written,", -1);
  if (!in_order(shadow.writer, shadow.written, shadow.written_in_warp))
    refuse(array, i, "reads, without a barrier after it was written,", shadow.writer);
  const int all_of_warp = Shadow::lanes_of(running_ / kWarp);
  const bool of_warp =
      shadow.reader == all_of_warp || (shadow.reader >= 0 && shadow.reader / kWarp == running_ / kWarp);
  if (shadow.read < 0 || in_order(shadow.reader, shadow.read, shadow.read_in_warp)) {
    shadow.reader = running_;
  } else {
    shadow.reader = of_warp ? all_of_warp : Shadow::kSeveral;
  }
  shadow.read = barriers_;
  shadow.read_in_warp = warp().synchronisations;
}

void Block::check_write(SharedArray& array, size_t i) {
  if (i >= array.shadows.size()) refuse(array, i, "writes", -1);
  Shadow& shadow = array.shadows[i];
  if (shadow.is_initialised && !in_order(shadow.writer, shadow.written, shadow.written_in_warp))
    refuse(array, i, "writes, without a barrier after another write,", shadow.writer);
  if (shadow.read >= 0 && !in_order(shadow.reader, shadow.read, shadow.read_in_warp))
    refuse(array, i, "writes, without a barrier after it was read,", shadow.reader);
  shadow.writer = running_;
  shadow.written = barriers_;
  shadow.written_in_warp = warp().synchronisations;
  shadow.is_initialised = true;
}

}  // namespace nought::emulation
