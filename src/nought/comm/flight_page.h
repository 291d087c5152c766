// FlightPage: the memory of a rank's flight recorder: what the rank does now, the groups that it belongs to, and its
// last collectives.
//
// Design goals: one rank writes, and others read at any time, also while the writer is stopped or after it died. So it
// is memory that the ranks of a host map, and nothing is left behind by any end. A file holds the same words, so that a
// signal handler can write it. Non-goals: exact readings while the writer writes. A reader may miss the newest call.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "nought/comm/communicator.h"

namespace nought {

/// How many calls a rank keeps, and in how many groups it can be at once.
inline constexpr uint64_t kFlightCalls = 2000;
inline constexpr size_t kFlightGroups = 64;
/// "NOUGHTF2", as the first bytes of a file.
inline constexpr uint64_t kFlightMagic = 0x3246'5448'4755'4F4E;

/// What the system says of a rank's process.
enum class RankState : uint32_t { running, waits_for_disk, stopped, dead };

// Times are nanoseconds of the system's clock: those of different hosts can be compared as far as their clocks agree.
// No struct has padding, since each is written and read as words.

struct FlightHeader {
  uint64_t magic = kFlightMagic;
  int32_t rank = 0, size = 1;  // this rank among all ranks of the job
  int32_t pid = 0;
  RankState state = RankState::running;  // as whoever wrote the file found it
  uint64_t process_start = 0;            // clock ticks since boot: no later process with this pid has it
  int64_t written = 0;                   // when the file was written; 0 in memory
  uint64_t calls = 0;                    // recorded so far
  uint64_t reporter = 0;                 // on the page of the first rank in reach: 1 + the rank that reports a time-out
  std::array<char, 64> host{};
};

struct FlightActivity {
  uint64_t version = 0;  // odd while it is written
  int64_t step = 0;      // 0: before the first step
  int64_t since = 0;
  std::array<char, 24> phase{};  // "forward", "data"
  std::array<char, 48> unit{};   // "block.3", or empty
};

/// The sequence numbers count the collectives of the group; messages between two ranks have numbers of their own.
struct FlightGroup {
  uint64_t identity = 0;                           // the same on all its ranks; 0: this place is free
  uint64_t submitted = 0, started = 0, ended = 0;  // the last sequence number of each kind
  int32_t rank = 0, size = 0;                      // in the group
  std::array<char, 32> name{};
};

struct FlightCall {
  uint64_t number = 0;    // 1 for the rank's first call; 0: nothing is recorded here
  uint64_t group = 0;     // the identity of its group
  uint64_t sequence = 0;  // 1 for the first of the group
  int64_t bytes = 0, step = 0;
  int64_t submitted = 0, started = 0, ended = 0;  // 0: not yet
  Collective::Kind collective = Collective::broadcast;
  DType dtype = DType::u8;
  uint8_t op = 0;                  // a ReduceOp
  uint8_t failed = 0;              // it ended with an error
  int32_t root = -1;               // or the peer of a message; -1: none
  std::array<char, 48> subject{};  // what it is about: "block.3", or empty
  std::array<char, 24> phase{};    // in which it was issued

  bool message() const;
  /// "all_gather of 12.0 MiB f32 for block.3"
  std::string str() const;
  /// Whether two ranks issued the same call.
  bool matches(const FlightCall& other) const;
};

/// The text of such a field, without what cannot be printed.
std::string flight_text(std::span<const char> field);
void set_flight_text(std::span<char> field, std::string_view text);
/// The system's clock.
int64_t flight_time();

class FlightPage {
 public:
  static constexpr size_t kHeader = 0;
  static constexpr size_t kActivity = kHeader + sizeof(FlightHeader) / 8;
  static constexpr size_t kGroups = kActivity + sizeof(FlightActivity) / 8;
  static constexpr size_t kCalls = kGroups + kFlightGroups * sizeof(FlightGroup) / 8;
  static constexpr size_t kWords = kCalls + kFlightCalls * sizeof(FlightCall) / 8;
  static constexpr size_t kBytes = kWords * 8;
  using Word = std::atomic<uint64_t>;

  /// Memory of this process alone.
  static std::shared_ptr<FlightPage> make();
  /// A new file in memory, which processes of this host open at /proc/PID/fd/N. -1 where the system refuses it.
  static int make_file();
  /// The memory of such a file; null if it cannot be mapped.
  static std::shared_ptr<FlightPage> map(int descriptor);
  /// Opens such a file of another process; -1 if it has none, or does not let this one open it.
  static int open_file_of(int pid, int descriptor);
  /// The file of another process, or null if that process has no such file or does not let this one open it.
  static std::shared_ptr<FlightPage> of_process(int pid, int descriptor);

  FlightPage(const FlightPage&) = delete;
  FlightPage& operator=(const FlightPage&) = delete;
  ~FlightPage();

  Word& word(size_t at) const { return words_[at]; }
  template <class T>
  void store(size_t at, const T& value) const {
    const auto words = std::bit_cast<std::array<uint64_t, sizeof(T) / 8>>(value);
    // Release and acquire keep the order in which the words are written, which costs nothing on x86.
    for (size_t i = 0; i < words.size(); ++i) words_[at + i].store(words[i], std::memory_order_release);
  }
  template <class T>
  T load(size_t at) const {
    std::array<uint64_t, sizeof(T) / 8> words;
    for (size_t i = 0; i < words.size(); ++i) words[i] = words_[at + i].load(std::memory_order_acquire);
    return std::bit_cast<T>(words);
  }
  FlightHeader header() const { return load<FlightHeader>(kHeader); }

 private:
  explicit FlightPage(void* memory) : words_(static_cast<Word*>(memory)) {}
  Word* words_;
};

/// A page as it was at one moment.
struct FlightSnapshot {
  FlightHeader header;
  FlightActivity activity;
  std::vector<FlightGroup> groups;
  std::vector<FlightCall> calls;  // oldest first

  const FlightGroup* group(uint64_t identity) const;
  /// The collective of the group with this sequence number, or null.
  const FlightCall* collective(uint64_t group, uint64_t sequence) const;
  /// The oldest call that has started and not ended, or null.
  const FlightCall* open_call() const;
};

/// The content of a page's words. `name` is what errors call it. IoError unless it has the length and the marks of a
/// page.
FlightSnapshot flight_snapshot(std::span<const uint64_t> words, std::string_view name);
/// The words of a page of this host, with the time and the state of its process, from /proc.
std::vector<uint64_t> flight_words(const FlightPage& page);
inline FlightSnapshot flight_snapshot(const FlightPage& page) {
  return flight_snapshot(flight_words(page), "a rank's memory");
}

/// State of the process with this number that began then (ProcessStat::start).
RankState state_of_process(int pid, uint64_t start);

}  // namespace nought
