// FlightRecorder: notes on a page, for others to read, what a rank does and each of its collectives: group, sequence
// number, operation, bytes, step, and the Unit or tensor that it is about.
//
// Design goals: nothing is allocated and nothing waits while calls are recorded; a call costs three readings of the
// clock. Non-goals: judging what was recorded (comm/flight_report does).
//
// The rank's computing thread notes what the rank does and issues calls; communication threads start and end them.
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "nought/comm/flight_page.h"

namespace nought {

/// A rank's place in a group, as its communicator keeps it.
struct FlightMembership {
  uint64_t identity = 0;
  int place = -1;  // on the page; -1: all places were taken, so that only the calls are recorded
  uint64_t collectives = 0, messages = 0, splits = 0;  // issued so far

  /// The identity of a group that was split off; the same on all its ranks.
  uint64_t identity_of_split(int color) const;
};

/// Which record a call has.
struct FlightTicket {
  uint64_t number = 0;  // 0: it is not recorded
  uint64_t sequence = 0;
  int place = -1;  // where its group stands in the page; -1 for messages too
};

class FlightRecorder {
 public:
  FlightRecorder(std::shared_ptr<FlightPage> page, int rank, int size, std::string_view host);

  /// The step that begins; 1 is the first.
  void set_step(int64_t step);
  /// What the rank does from now on: "data", "forward".
  void set_phase(std::string_view phase);
  /// The Unit whose pass begins.
  void set_unit(std::string_view unit);
  /// What the next calls are about. The text must live until it is replaced.
  void set_subject(std::string_view subject) {
    const std::lock_guard lock(mutex_);
    subject_ = subject;
  }
  std::string_view subject() const {
    const std::lock_guard lock(mutex_);
    return subject_;
  }

  FlightMembership join(uint64_t identity, std::string_view name, int rank, int size);
  void leave(const FlightMembership& group);

  /// A call is issued. `root`: its root or peer, or -1.
  FlightTicket submit(FlightMembership& group, Collective::Kind collective, ReduceOp op, DType dtype, int64_t bytes,
                      int root);
  void start(const FlightTicket& ticket) const;
  void end(const FlightTicket& ticket, bool failed) const;
  /// What was recorded of the call; its number is 0 if the page has it no more.
  FlightCall call(const FlightTicket& ticket) const;

  const std::shared_ptr<FlightPage>& page() const { return page_; }
  int rank() const { return rank_; }
  /// The pages of all ranks, by rank; null for one out of reach. To be set before the first call.
  void set_peers(std::vector<std::shared_ptr<FlightPage>> peers) { peers_ = std::move(peers); }
  const std::vector<std::shared_ptr<FlightPage>>& peers() const { return peers_; }
  /// The folder that gets the files of a time-out; empty: none are written.
  void set_folder(std::string folder) { folder_ = std::move(folder); }
  const std::string& folder() const { return folder_; }

 private:
  void publish_activity();

  std::shared_ptr<FlightPage> page_;
  int rank_;
  std::vector<std::shared_ptr<FlightPage>> peers_;
  std::string folder_;
  FlightActivity activity_;
  std::string_view subject_;
  uint64_t calls_ = 0;
  mutable std::mutex mutex_;  // a thread that runs during the passes may issue the calls of a group of its own
};

/// While it lives, a call runs.
class FlightScope {
 public:
  FlightScope(const FlightRecorder* recorder, const FlightTicket& ticket);
  ~FlightScope();
  FlightScope(const FlightScope&) = delete;
  FlightScope& operator=(const FlightScope&) = delete;

 private:
  const FlightRecorder* recorder_;
  FlightTicket ticket_;
  int exceptions_at_birth_;
};

/// While it lives, the calls of this rank are about the subject, which outlives it.
class FlightSubject {
 public:
  FlightSubject(const Communicator& ranks, std::string_view subject);
  ~FlightSubject();
  FlightSubject(const FlightSubject&) = delete;
  FlightSubject& operator=(const FlightSubject&) = delete;

 private:
  FlightRecorder* recorder_;
  std::string_view before_;
};

/// Notes what the rank does from now on; nothing for a group that records nothing.
void note_phase(const Communicator& ranks, std::string_view phase);

}  // namespace nought
