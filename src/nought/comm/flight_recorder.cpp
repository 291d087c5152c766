#include "nought/comm/flight_recorder.h"

#include <cstddef>
#include <exception>

#include <unistd.h>

#include "nought/base/process.h"

namespace nought {
namespace {

constexpr size_t group_at(int place) {
  return FlightPage::kGroups + static_cast<size_t>(place) * sizeof(FlightGroup) / 8;
}

constexpr size_t call_at(uint64_t number) {
  return FlightPage::kCalls + (number - 1) % kFlightCalls * sizeof(FlightCall) / 8;
}

// What is written alone has a word of its own.
constexpr size_t kNumberOfCalls = FlightPage::kHeader + offsetof(FlightHeader, calls) / 8;
constexpr size_t kStarted = offsetof(FlightCall, started) / 8, kEnded = offsetof(FlightCall, ended) / 8;
constexpr size_t kGroupSubmitted = offsetof(FlightGroup, submitted) / 8,
                 kGroupStarted = offsetof(FlightGroup, started) / 8, kGroupEnded = offsetof(FlightGroup, ended) / 8;
constexpr size_t kKind = offsetof(FlightCall, collective) / 8;
static_assert(offsetof(FlightCall, collective) % 8 == 0 &&
              offsetof(FlightCall, root) == offsetof(FlightCall, collective) + 4);
constexpr uint64_t kFailedBit = uint64_t{1} << 24;  // the bytes of that word are collective, dtype, op, failed
static_assert(std::endian::native == std::endian::little && offsetof(FlightCall, failed) % 8 == 3);

void put(const FlightPage& page, size_t at, uint64_t value) { page.word(at).store(value, std::memory_order_release); }

}  // namespace

uint64_t FlightMembership::identity_of_split(int color) const {
  // The finalizer of SplitMix64, so that different histories give different numbers.
  uint64_t mixed =
      identity + splits * 0x9E37'79B9'7F4A'7C15 + (static_cast<uint64_t>(color) + 1) * 0xD1B5'4A32'D192'ED03;
  mixed = (mixed ^ (mixed >> 30)) * 0xBF58'476D'1CE4'E5B9;
  mixed = (mixed ^ (mixed >> 27)) * 0x94D0'49BB'1331'11EB;
  return (mixed ^ (mixed >> 31)) | 1;  // never 0
}

FlightRecorder::FlightRecorder(std::shared_ptr<FlightPage> page, int rank, int size, std::string_view host)
    : page_(std::move(page)), rank_(rank) {
  FlightHeader header{.rank = rank, .size = size, .pid = getpid()};
  if (const auto stat = process_stat(header.pid)) header.process_start = stat->start;
  set_flight_text(header.host, host);
  page_->store(FlightPage::kHeader, header);
  set_phase("starting");
}

void FlightRecorder::publish_activity() {
  activity_.since = flight_time();
  activity_.version += 1;
  page_->store(FlightPage::kActivity, activity_);  // its first word says that the others are being written
  activity_.version += 1;
  put(*page_, FlightPage::kActivity, activity_.version);
}

void FlightRecorder::set_step(int64_t step) {
  const std::lock_guard lock(mutex_);
  activity_.step = step;
  publish_activity();
}

void FlightRecorder::set_phase(std::string_view phase) {
  const std::lock_guard lock(mutex_);
  set_flight_text(activity_.phase, phase);
  set_flight_text(activity_.unit, "");
  publish_activity();
}

void FlightRecorder::set_unit(std::string_view unit) {
  const std::lock_guard lock(mutex_);
  set_flight_text(activity_.unit, unit);
  publish_activity();
}

FlightMembership FlightRecorder::join(uint64_t identity, std::string_view name, int rank, int size) {
  FlightGroup group{.identity = identity, .rank = rank, .size = size};
  set_flight_text(group.name, name);
  for (int place = 0; place < static_cast<int>(kFlightGroups); ++place) {
    if (page_->word(group_at(place)).load(std::memory_order_relaxed) != 0) continue;
    page_->store(group_at(place), group);
    return {.identity = identity, .place = place};
  }
  return {.identity = identity};
}

void FlightRecorder::leave(const FlightMembership& group) {
  if (group.place >= 0) put(*page_, group_at(group.place), 0);
}

FlightTicket FlightRecorder::submit(FlightMembership& group, Collective::Kind collective, ReduceOp op, DType dtype,
                                    int64_t bytes, int root) {
  const std::lock_guard lock(mutex_);
  FlightCall call{.group = group.identity,
                  .bytes = bytes,
                  .step = activity_.step,
                  .submitted = flight_time(),
                  .collective = collective,
                  .dtype = dtype,
                  .op = static_cast<uint8_t>(op),
                  .root = root,
                  .phase = activity_.phase};
  set_flight_text(call.subject, subject_);
  const bool message = call.message();
  call.sequence = message ? ++group.messages : ++group.collectives;
  const FlightTicket ticket{.number = ++calls_, .sequence = call.sequence, .place = message ? -1 : group.place};
  page_->store(call_at(ticket.number), call);  // number 0: a reader passes over it until it is whole
  put(*page_, call_at(ticket.number), ticket.number);
  put(*page_, kNumberOfCalls, calls_);
  if (ticket.place >= 0) put(*page_, group_at(ticket.place) + kGroupSubmitted, ticket.sequence);
  return ticket;
}

void FlightRecorder::start(const FlightTicket& ticket) const {
  const size_t at = call_at(ticket.number);
  if (page_->word(at).load(std::memory_order_relaxed) != ticket.number) return;  // so many calls were issued since
  put(*page_, at + kStarted, static_cast<uint64_t>(flight_time()));
  if (ticket.place >= 0) put(*page_, group_at(ticket.place) + kGroupStarted, ticket.sequence);
}

void FlightRecorder::end(const FlightTicket& ticket, bool failed) const {
  const size_t at = call_at(ticket.number);
  if (page_->word(at).load(std::memory_order_relaxed) != ticket.number) return;
  put(*page_, at + kEnded, static_cast<uint64_t>(flight_time()));
  if (failed) return put(*page_, at + kKind, page_->word(at + kKind).load(std::memory_order_relaxed) | kFailedBit);
  if (ticket.place >= 0) put(*page_, group_at(ticket.place) + kGroupEnded, ticket.sequence);
}

FlightCall FlightRecorder::call(const FlightTicket& ticket) const {
  if (ticket.number == 0) return {};
  const auto call = page_->load<FlightCall>(call_at(ticket.number));
  return call.number == ticket.number ? call : FlightCall{};
}

FlightScope::FlightScope(const FlightRecorder* recorder, const FlightTicket& ticket)
    : recorder_(ticket.number == 0 ? nullptr : recorder),
      ticket_(ticket),
      exceptions_at_birth_(std::uncaught_exceptions()) {
  if (recorder_) recorder_->start(ticket_);
}

FlightScope::~FlightScope() {
  if (recorder_) recorder_->end(ticket_, std::uncaught_exceptions() > exceptions_at_birth_);
}

FlightSubject::FlightSubject(const Communicator& ranks, std::string_view subject) : recorder_(ranks.recorder()) {
  if (!recorder_) return;
  before_ = recorder_->subject();
  recorder_->set_subject(subject);
}

FlightSubject::~FlightSubject() {
  if (recorder_) recorder_->set_subject(before_);
}

void note_phase(const Communicator& ranks, std::string_view phase) {
  if (FlightRecorder* recorder = ranks.recorder()) recorder->set_phase(phase);
}

}  // namespace nought
