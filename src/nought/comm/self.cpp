#include "nought/comm/self.h"

#include <unistd.h>

#include "nought/base/host.h"
#include "nought/comm/flight_keeper.h"
#include "nought/comm/stream_communicator.h"

namespace nought {
namespace {

/// The turn of a collective among the tasks of a stream: copies are made there. A device runs them when it has done
/// what it was given before, and not as the host submits them.
class Turn final : public Stream {
 public:
  explicit Turn(const Call& call) : stream_(*call.stream) {}
  void copy_bytes(const std::byte* from, std::byte* to, size_t count) override { stream_.copy_bytes(from, to, count); }

 private:
  Stream& stream_;
};

/// A group of one: every collective is a copy, or nothing.
class SelfTransport final : public Transport {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  std::string_view backend() const override { return "self"; }

  void run(const Call& call, const Collective& collective) override {
    if (!collective.in || !collective.out) return;
    Turn turn(call);
    copy(collective.in, collective.out, turn);
  }
  std::unique_ptr<Transport> split(const Call&, int, int) override { return std::make_unique<SelfTransport>(); }
  void cancel() override {}
};

}  // namespace

std::unique_ptr<Communicator> make_self_communicator() {
  return std::make_unique<StreamCommunicator>(std::make_unique<SelfTransport>(), std::make_shared<Stream>());
}

std::unique_ptr<Communicator> make_recorded_self_communicator() {
  const int kept = open_kept_page(0);
  std::shared_ptr<FlightPage> page = FlightPage::map(kept);
  if (kept >= 0) close(kept);
  if (!page) page = FlightPage::make();
  auto recorder = std::make_shared<FlightRecorder>(std::move(page), 0, 1, host_name());
  recorder->set_peers({recorder->page()});
  return std::make_unique<StreamCommunicator>(std::make_unique<SelfTransport>(), std::make_shared<Stream>(),
                                              std::move(recorder));
}

}  // namespace nought
