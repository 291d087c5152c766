#include "nought/tensor/memory.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>

#include <sys/mman.h>

#include "nought/base/math.h"
#include "nought/base/text.h"
#include "nought/tensor/address_space.h"

namespace nought {

std::string_view name_of(Category category) {
  switch (category) {
    case Category::parameters:
      return "parameters";
    case Category::gradients:
      return "gradients";
    case Category::optimizer:
      return "optimizer";
    case Category::activations:
      return "activations";
    case Category::communication:
      return "communication";
    case Category::workspace:
      return "workspace";
    case Category::kv_cache:
      return "kv_cache";
    case Category::checkpoint:
      return "checkpoint";
  }
  return "?";
}

std::string_view name_of(Pool pool) {
  switch (pool) {
    case Pool::device:
      return "device";
    case Pool::host:
      return "host";
    case Pool::file:
      return "file";
  }
  return "?";
}

// --- MemoryLedger ---

void MemoryLedger::add(Category category, Pool pool, int64_t bytes) {
  std::lock_guard lock(mutex_);
  Book& book = books_[static_cast<size_t>(pool)];
  Account& account = book.accounts[static_cast<size_t>(category)];
  account.current += bytes;
  account.peak = std::max(account.peak, account.current);
  book.current += bytes;
  if (book.current > book.peak) {
    book.peak = book.current;
    for (Account& each : book.accounts) each.at_peak = each.current;
  }
  peak_device_and_host_ = std::max(peak_device_and_host_, device_and_host());
}

int64_t MemoryLedger::device_and_host() const {
  return books_[static_cast<size_t>(Pool::device)].current + books_[static_cast<size_t>(Pool::host)].current;
}

void MemoryLedger::remove(Category category, Pool pool, int64_t bytes) {
  std::lock_guard lock(mutex_);
  Book& book = books_[static_cast<size_t>(pool)];
  book.accounts[static_cast<size_t>(category)].current -= bytes;
  book.current -= bytes;
}

int64_t MemoryLedger::current(Category category, Pool pool) const {
  std::lock_guard lock(mutex_);
  return books_[static_cast<size_t>(pool)].accounts[static_cast<size_t>(category)].current;
}
int64_t MemoryLedger::peak(Category category, Pool pool) const {
  std::lock_guard lock(mutex_);
  return books_[static_cast<size_t>(pool)].accounts[static_cast<size_t>(category)].peak;
}
int64_t MemoryLedger::at_peak(Category category, Pool pool) const {
  std::lock_guard lock(mutex_);
  return books_[static_cast<size_t>(pool)].accounts[static_cast<size_t>(category)].at_peak;
}
int64_t MemoryLedger::current_total(Pool pool) const {
  std::lock_guard lock(mutex_);
  return books_[static_cast<size_t>(pool)].current;
}
int64_t MemoryLedger::peak_total(Pool pool) const {
  std::lock_guard lock(mutex_);
  return books_[static_cast<size_t>(pool)].peak;
}
int64_t MemoryLedger::peak_device_and_host() const {
  std::lock_guard lock(mutex_);
  return peak_device_and_host_;
}

void MemoryLedger::add_moved(Pool from, Pool to, int64_t bytes) {
  std::lock_guard lock(mutex_);
  moved_[static_cast<size_t>(from)][static_cast<size_t>(to)] += bytes;
}
int64_t MemoryLedger::moved(Pool from, Pool to) const {
  std::lock_guard lock(mutex_);
  return moved_[static_cast<size_t>(from)][static_cast<size_t>(to)];
}

void MemoryLedger::reset_peaks() {
  std::lock_guard lock(mutex_);
  for (Book& book : books_) {
    book.peak = book.current;
    for (Account& account : book.accounts) account.peak = account.at_peak = account.current;
  }
  peak_device_and_host_ = device_and_host();
}

std::string MemoryLedger::table() const {
  std::lock_guard lock(mutex_);
  std::string text =
      fmt::format("{:<8} {:<14} {:>12} {:>12} {:>14}\n", "pool", "category", "now", "peak", "at total peak");
  for (int p = 0; p < kNumPools; ++p) {
    const Book& book = books_[static_cast<size_t>(p)];
    if (book.peak == 0) continue;
    const std::string_view pool = name_of(static_cast<Pool>(p));
    for (int c = 0; c < kNumCategories; ++c) {
      const Account& account = book.accounts[static_cast<size_t>(c)];
      if (account.peak == 0) continue;
      text += fmt::format("{:<8} {:<14} {:>12} {:>12} {:>14}\n", pool, name_of(static_cast<Category>(c)),
                          format_bytes(account.current), format_bytes(account.peak), format_bytes(account.at_peak));
    }
    text += fmt::format("{:<8} {:<14} {:>12} {:>12} {:>14}\n", pool, "total", format_bytes(book.current),
                        format_bytes(book.peak), format_bytes(book.peak));
  }
  return text;
}

// --- Buffer ---

Buffer::Buffer(std::shared_ptr<Memory> memory, void* data, int64_t bytes, size_t size_class, Category category,
               Pool pool, std::shared_ptr<void> owner)
    : memory_(std::move(memory)),
      data_(data),
      bytes_(bytes),
      size_class_(size_class),
      category_(category),
      pool_(pool),
      owner_(std::move(owner)) {}

Buffer::Buffer(std::shared_ptr<Buffer> behind, std::byte* address)
    : memory_(behind->memory_),
      data_(address),
      bytes_(behind->bytes_),
      size_class_(behind->size_class_),
      category_(behind->category_),
      pool_(behind->pool_),
      behind_(std::move(behind)) {}

Buffer::~Buffer() {
  if (!behind_) memory_->release(*this);  // else what is behind returns, once no work holds it
}

bool Buffer::is_virtual() const { return memory_->is_virtual(); }

// --- Memory ---

namespace {

/// Requests are served from classes with at most 1/8 of waste, so that blocks of nearby sizes replace each other.
size_t size_class_of(int64_t bytes) {
  auto size = static_cast<size_t>(round_up(std::max<int64_t>(bytes, 64), 64));
  if (size <= 512) return size;
  const size_t step = std::bit_floor(size) / 8;
  return (size + step - 1) / step * step;
}

void* system_reserve(size_t bytes) {
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, /*fd=*/-1,
                    /*offset=*/0);
  return data == MAP_FAILED ? nullptr : data;
}

}  // namespace

Device& Memory::device_of(Pool pool) const {
  if (pool == Pool::device) return *device_;
  Device* const host = device_->host_side();
  return host != nullptr ? *host : *cpu_device();
}

int64_t Memory::counted_bytes(int64_t bytes, Pool pool) const {
  return round_up(bytes, static_cast<int64_t>(pool == Pool::device ? device_->alignment() : 64));
}

Memory::~Memory() {
  for (int pool = 0; pool < kNumPools; ++pool)
    for (const auto& [size_class, blocks] : free_[static_cast<size_t>(pool)])
      for (void* block : blocks) device_of(static_cast<Pool>(pool)).free(block, size_class);
  if (arena_block_) device_->free(arena_block_, static_cast<size_t>(arena_bytes_));
}

void Memory::drop_replaced_blocks() {
  std::unordered_map<size_t, size_t> kept;
  for (const int64_t bytes : arena_.outlasting()) ++kept[size_class_of(bytes)];
  for (auto& [size_class, blocks] : free_[static_cast<size_t>(Pool::device)])
    while (size_class > size_class_of(StepArena::kLeastBytes) && blocks.size() > kept[size_class]) {
      device_->free(blocks.back(), size_class);
      blocks.pop_back();
    }
}

std::shared_ptr<Buffer> Memory::allocate(int64_t bytes, Category category, Pool pool) {
  return take(bytes, category, pool).first;
}

std::shared_ptr<Buffer> Memory::allocate_zeroed(int64_t bytes, Category category, Pool pool) {
  require<DeviceError>(pool != Pool::device || device_->is_host(),
                       "the host cannot clear memory of the device {}: Context::zeros() does it on a stream",
                       device_->name());
  auto [buffer, zeroed] = take(bytes, category, pool);
  if (!zeroed && !virtual_) std::memset(buffer->data(), 0, static_cast<size_t>(buffer->bytes()));
  return std::move(buffer);
}

std::pair<std::shared_ptr<Buffer>, bool> Memory::take(int64_t bytes, Category category, Pool pool) {
  require<DeviceError>(bytes >= 0, "cannot allocate {} bytes", bytes);
  require<DeviceError>(pool != Pool::file,
                       "cannot allocate {} for {} in a file: no storage of tensors in files is there",
                       format_bytes(bytes), name_of(category));
  const int64_t counted = counted_bytes(bytes, pool);
  const size_t size_class = size_class_of(counted);
  Block block;
  StepArena::Ticket ticket;
  {
    std::lock_guard lock(mutex_);
    require_room(counted, category, pool);
    if (pool == Pool::device) {
      const StepArena::Place place = arena_.take(counted);
      block.data = place.data, ticket = place.ticket;
    }
    if (!block.data) block = take_block(size_class, pool);
    if (block.data) book(counted, category, pool);
  }
  if (!block.data && virtual_)
    fail<DeviceError>(
        "predicting memory reserves address space, and the system refuses another {} of it{}: raise the "
        "limit with `ulimit -v unlimited`",
        format_bytes(bytes), address_space_note());
  if (!block.data)
    fail<DeviceError>("out of memory: {} for {} were refused by the system{}; held on this rank:\n{}",
                      format_bytes(bytes), name_of(category), address_space_note(), ledger_.table());
  auto buffer = std::make_shared<Buffer>(shared_from_this(), block.data, counted, size_class, category, pool);
  buffer->ticket_ = ticket;
  if (pool == Pool::device && !device_->is_host())
    buffer = std::make_shared<Buffer>(buffer, device_->address_of(buffer->data()));
  return {std::move(buffer), block.zeroed};
}

std::shared_ptr<Buffer> Memory::adopt(std::shared_ptr<void> owner, int64_t bytes, Category category, Pool pool) {
  const int64_t counted = counted_bytes(bytes, pool);
  {
    std::lock_guard lock(mutex_);
    require_room(counted, category, pool);
    book(counted, category, pool);
  }
  void* data = owner.get();
  return std::make_shared<Buffer>(shared_from_this(), data, counted, /*size_class=*/0, category, pool,
                                  std::move(owner));
}

void Memory::require_room(int64_t bytes, Category category, Pool pool) const {
  if (pool == Pool::device && device_limit_ > 0 && ledger_.current_total() + bytes > device_limit_)
    refuse(bytes, category, Pool::device);
  if (in_ram(pool) && ram_limit_ > 0 && used_of_ram() + bytes > ram_limit_) refuse(bytes, category, Pool::host);
}

int64_t Memory::used_of_ram() const {
  return ledger_.current_total(Pool::host) + (device_->is_host() ? ledger_.current_total() : 0);
}

void Memory::book(int64_t bytes, Category category, Pool pool) {
  ledger_.add(category, pool, bytes);
  ++alive_[{bytes, category, pool}];
}

Memory::Block Memory::take_block(size_t size_class, Pool pool) {
  if (virtual_) return {system_reserve(size_class), true};
  auto& blocks = free_[static_cast<size_t>(pool)][size_class];
  if (blocks.empty()) {
    ++system_allocations_;
    Device& device = device_of(pool);
    return {device.allocate(size_class), device.clears(size_class)};
  }
  void* data = blocks.back();
  blocks.pop_back();
  return {data, false};
}

void Memory::release(const Buffer& buffer) {
  std::lock_guard lock(mutex_);
  ledger_.remove(buffer.category_, buffer.pool_, buffer.bytes_);
  const auto alive = alive_.find({buffer.bytes_, buffer.category_, buffer.pool_});
  if (--alive->second == 0) alive_.erase(alive);
  if (buffer.pool_ == Pool::device && !buffer.owner_ && !device_->is_host())
    device_->on_release(buffer.data_, static_cast<size_t>(buffer.bytes_));
  arena_.give_back(buffer.data(), buffer.ticket_);
  if (buffer.owner_ || buffer.ticket_.placed) return;
  if (virtual_) {
    munmap(buffer.data_, buffer.size_class_);
  } else {
    free_[static_cast<size_t>(buffer.pool_)][buffer.size_class_].push_back(buffer.data_);
  }
}

void Memory::set_limit(int64_t bytes, Pool pool) {
  require<DeviceError>(pool != Pool::file, "what lies in files has no budget of memory");
  std::lock_guard lock(mutex_);
  (pool == Pool::device ? device_limit_ : ram_limit_) = bytes;
}

void Memory::refuse(int64_t bytes, Category category, Pool budget) const {
  const bool of_host = budget == Pool::host;
  fail<MemoryLimitError>(
      "the {}memory budget of {} does not hold another {} for {}: {} are in use\n{}largest: {}", of_host ? "host " : "",
      format_bytes(of_host ? ram_limit_ : device_limit_), format_bytes(bytes), name_of(category),
      format_bytes(of_host ? used_of_ram() : ledger_.current_total()), ledger_.table(), largest_buffers(budget));
}

std::string Memory::largest_buffers(Pool budget) const {
  constexpr size_t kShown = 6;
  struct Group {
    int64_t bytes, count;
    Category category;
    Pool pool;
  };
  std::vector<Group> groups;
  for (const auto& [key, count] : alive_)
    if (const Pool pool = std::get<Pool>(key); budget == Pool::host ? in_ram(pool) : pool == budget)
      groups.push_back({std::get<int64_t>(key), count, std::get<Category>(key), pool});
  std::sort(groups.begin(), groups.end(),
            [](const Group& a, const Group& b) { return a.bytes * a.count > b.bytes * b.count; });
  std::string text;
  for (size_t i = 0; i < std::min(groups.size(), kShown); ++i)
    text += fmt::format("{}{} x {} {}{}", i == 0 ? "" : ", ", groups[i].count, format_bytes(groups[i].bytes),
                        name_of(groups[i].category), groups[i].pool == Pool::host ? " on the host" : "");
  return text;
}

int64_t Memory::system_allocations() const {
  std::lock_guard lock(mutex_);
  return system_allocations_;
}

int64_t Memory::fragmentation() const {
  std::lock_guard lock(mutex_);
  return arena_.fragmentation();
}

Memory::Step::Step(Memory& memory) : memory_(memory) {
  if (memory_.virtual_) return;
  std::lock_guard lock(memory_.mutex_);
  memory_.arena_.begin_step();
}

Memory::Step::~Step() {
  if (!memory_.virtual_) memory_.end_step();
}

/// Moves to the arena that the step asks for; the blocks that it replaces go first. Without room for it, or after a
/// step that failed, all stays as it is.
void Memory::end_step() {
  std::lock_guard lock(mutex_);
  std::optional<Packing> packing = arena_.end_step();
  if (!packing) return;
  if (arena_block_) device_->free(arena_block_, static_cast<size_t>(arena_bytes_));
  drop_replaced_blocks();
  ++system_allocations_;
  arena_bytes_ = std::max<int64_t>(packing->bytes, 64);
  arena_block_ = device_->allocate(static_cast<size_t>(arena_bytes_));
  arena_.move_to(static_cast<std::byte*>(arena_block_), std::move(*packing));
}

}  // namespace nought
