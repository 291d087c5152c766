#include "nought/comm/flight_page.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "nought/base/process.h"
#include "nought/base/text.h"

namespace nought {
namespace {

static_assert(FlightPage::Word::is_always_lock_free && sizeof(FlightPage::Word) == 8);
static_assert(sizeof(FlightHeader) == 120 && sizeof(FlightActivity) == 96 && sizeof(FlightGroup) == 72 &&
              sizeof(FlightCall) == 144);

constexpr const char* kMemoryName = "nought-flight-recorder";

void* map_memory(int descriptor, int flags) {
  void* memory = mmap(nullptr, FlightPage::kBytes, PROT_READ | PROT_WRITE, flags, descriptor, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}

}  // namespace

bool FlightCall::message() const { return collective == Collective::send || collective == Collective::recv; }

std::string FlightCall::str() const {
  std::string text(name_of(collective));
  if (bytes > 0) text += fmt::format(" of {} {}", format_bytes(bytes), name_of(dtype));
  if (root >= 0) text += fmt::format(" {} {}", message() ? "with rank" : "at root", root);
  if (const std::string about = flight_text(subject); !about.empty()) text += fmt::format(" for {}", about);
  return text;
}

bool FlightCall::matches(const FlightCall& other) const {
  const bool same_size = bytes == other.bytes || sizes_differ(collective);
  return collective == other.collective && dtype == other.dtype && op == other.op && root == other.root && same_size &&
         subject == other.subject;
}

std::string flight_text(std::span<const char> field) {
  std::string text(field.data(), strnlen(field.data(), field.size()));
  for (char& c : text)
    if (c < ' ' || c > '~') c = '?';
  return text;
}

void set_flight_text(std::span<char> field, std::string_view text) {
  const size_t length = std::min(text.size(), field.size() - 1);
  std::copy_n(text.begin(), length, field.begin());
  std::fill(field.begin() + static_cast<std::ptrdiff_t>(length), field.end(), '\0');
}

int64_t flight_time() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::shared_ptr<FlightPage> FlightPage::make() {
  void* memory = map_memory(-1, MAP_PRIVATE | MAP_ANONYMOUS);
  require<DeviceError>(memory != nullptr, "the system refused {} for the flight recorder", format_bytes(kBytes));
  return std::shared_ptr<FlightPage>(new FlightPage(memory));
}

int FlightPage::make_file() {
  const int made = memfd_create(kMemoryName, MFD_CLOEXEC);
  if (made < 0 || ftruncate(made, static_cast<off_t>(kBytes)) == 0) return made;
  close(made);
  return -1;
}

std::shared_ptr<FlightPage> FlightPage::map(int descriptor) {
  // Fresh pages now, not one by one between the collectives.
  void* memory = descriptor < 0 ? nullptr : map_memory(descriptor, MAP_SHARED | MAP_POPULATE);
  return memory == nullptr ? nullptr : std::shared_ptr<FlightPage>(new FlightPage(memory));
}

int FlightPage::open_file_of(int pid, int descriptor) {
  const std::string path = fmt::format("/proc/{}/fd/{}", pid, descriptor);
  std::error_code error;
  // In another container the same numbers may be another file.
  if (!std::filesystem::read_symlink(path, error).string().starts_with(fmt::format("/memfd:{}", kMemoryName)))
    return -1;
  return open(path.c_str(), O_RDWR | O_CLOEXEC);
}

std::shared_ptr<FlightPage> FlightPage::of_process(int pid, int descriptor) {
  const int own = descriptor < 0 ? -1 : open_file_of(pid, descriptor);
  std::shared_ptr<FlightPage> page = map(own);
  if (own >= 0) close(own);
  return page && page->header().magic == kFlightMagic && page->header().pid == pid ? page : nullptr;
}

FlightPage::~FlightPage() { munmap(static_cast<void*>(words_), kBytes); }

const FlightGroup* FlightSnapshot::group(uint64_t identity) const {
  const auto found = std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return g.identity == identity; });
  return found == groups.end() ? nullptr : &*found;
}

const FlightCall* FlightSnapshot::collective(uint64_t group, uint64_t sequence) const {
  const auto found = std::find_if(calls.begin(), calls.end(), [&](const FlightCall& call) {
    return call.group == group && call.sequence == sequence && !call.message();
  });
  return found == calls.end() ? nullptr : &*found;
}

const FlightCall* FlightSnapshot::open_call() const {
  const auto found = std::find_if(calls.begin(), calls.end(), [](const FlightCall& call) {
    return call.started > 0 && (call.ended == 0 || call.failed);
  });
  return found == calls.end() ? nullptr : &*found;
}

namespace {

template <class T>
T struct_at(std::span<const uint64_t> words, size_t at) {
  std::array<uint64_t, sizeof(T) / 8> some;
  std::copy_n(words.begin() + static_cast<std::ptrdiff_t>(at), some.size(), some.begin());
  return std::bit_cast<T>(some);
}

}  // namespace

FlightSnapshot flight_snapshot(std::span<const uint64_t> words, std::string_view name) {
  const auto check = [&](bool holds) {
    require<IoError>(holds, "{} is not a file of the flight recorder of this version", name);
  };
  check(words.size() == FlightPage::kWords);
  FlightSnapshot snapshot{.header = struct_at<FlightHeader>(words, FlightPage::kHeader),
                          .activity = struct_at<FlightActivity>(words, FlightPage::kActivity),
                          .groups = {},
                          .calls = {}};
  const FlightHeader& header = snapshot.header;
  check(header.magic == kFlightMagic && 0 <= header.rank && header.rank < header.size &&
        header.state <= RankState::dead);
  for (size_t i = 0; i < kFlightGroups; ++i) {
    const auto group = struct_at<FlightGroup>(words, FlightPage::kGroups + i * sizeof(FlightGroup) / 8);
    if (group.identity != 0) snapshot.groups.push_back(group);
  }
  for (size_t i = 0; i < kFlightCalls; ++i) {
    const auto call = struct_at<FlightCall>(words, FlightPage::kCalls + i * sizeof(FlightCall) / 8);
    if (call.number == 0) continue;
    check(call.collective <= Collective::split && call.dtype <= DType::i8);
    snapshot.calls.push_back(call);
  }
  std::sort(snapshot.calls.begin(), snapshot.calls.end(),
            [](const FlightCall& a, const FlightCall& b) { return a.number < b.number; });
  return snapshot;
}

std::vector<uint64_t> flight_words(const FlightPage& page) {
  std::vector<uint64_t> words(FlightPage::kWords);
  const auto read = [&] {
    for (size_t i = 0; i < words.size(); ++i) words[i] = page.word(i).load(std::memory_order_acquire);
    // Odd: the rank is about to write what it does. It may be stopped there, so the reader does not insist.
    return words[FlightPage::kActivity] % 2 == 0;
  };
  for (int tries = 0; tries < 3 && !read(); ++tries) continue;
  auto header = struct_at<FlightHeader>(words, FlightPage::kHeader);
  header.state = state_of_process(header.pid, header.process_start);
  header.written = flight_time();
  const auto changed = std::bit_cast<std::array<uint64_t, sizeof(FlightHeader) / 8>>(header);
  std::copy(changed.begin(), changed.end(), words.begin());
  return words;
}

RankState state_of_process(int pid, uint64_t start) {
  const std::optional<ProcessStat> found = process_stat(pid);
  if (!found || found->start != start) return RankState::dead;
  switch (found->state) {
    case 'T':  // by a signal
    case 't':  // by a debugger
      return RankState::stopped;
    case 'D':
      return RankState::waits_for_disk;
    case 'Z':
    case 'X':
      return RankState::dead;
    default:
      return RankState::running;
  }
}

}  // namespace nought
