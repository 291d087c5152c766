// What a StreamCommunicator adds to any transport: order, checks of arguments, counts, events and failures that wait.
#include "nought/comm/stream_communicator.h"

#include "support/message_of.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nought::stream_communicator_test {
namespace {

using test::message_of;
using testing::ElementsAre;
using testing::HasSubstr;

/// A transport among `size` ranks that moves nothing: it writes down what reaches it, and fails where it is told to.
class Recorder final : public Transport {
 public:
  struct Log {
    std::vector<std::string> calls;
    std::string fails_in;
    bool cancelled = false;
  };
  Recorder(std::shared_ptr<Log> log, int rank, int size) : log_(std::move(log)), rank_(rank), size_(size) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string_view backend() const override { return "recorder"; }
  void run(const Call& call, const Collective&) override { note(call); }
  std::unique_ptr<Transport> split(const Call& call, int color, int) override {
    note(call);
    return std::make_unique<Recorder>(log_, 0, color == 0 ? 1 : 2);
  }
  void cancel() override { log_->cancelled = true; }

 private:
  void note(const Call& call) {
    log_->calls.push_back(call.str());
    if (call.name == log_->fails_in) fail<CommError>("the wire broke");
  }
  std::shared_ptr<Log> log_;
  int rank_, size_;
};

struct Fixture {
  Fixture() : recorded(std::make_unique<Recorder>(log, 1, 4), std::make_shared<Stream>(Stream::Kind::worker, "comm")) {}
  std::shared_ptr<Recorder::Log> log = std::make_shared<Recorder::Log>();
  Context context = Context::reference();
  StreamCommunicator recorded;
  Communicator& group = recorded;
  Tensor tensor(int64_t n, DType dtype = DType::f32) const { return context.zeros({n}, dtype); }
};

TEST(StreamCommunicator, calls_run_in_their_order_and_name_themselves) {
  Fixture f;
  f.group.all_gather(f.tensor(1 << 20), f.tensor(4 << 20));
  f.group.reduce_scatter(f.tensor(8, DType::bf16), f.tensor(2, DType::bf16));
  f.group.barrier().wait();
  EXPECT_THAT(f.log->calls, ElementsAre("all_gather of 16.0 MiB f32 in group of 4",
                                        "reduce_scatter of 16 B bf16 in group of 4", "barrier in group of 4"));
}

TEST(StreamCommunicator, a_failure_waits_for_whoever_waits_and_the_next_call_runs) {
  Fixture f;
  f.log->fails_in = "all_reduce";
  const Event broken = f.group.all_reduce(f.tensor(4));
  EXPECT_NO_THROW(f.group.barrier().wait());
  EXPECT_THAT(message_of<CommError>([&] { broken.wait(); }), HasSubstr("the wire broke"));
}

TEST(StreamCommunicator, what_does_not_fit_is_refused_before_it_is_issued) {
  Fixture f;
  const Tensor four = f.tensor(4), two = f.tensor(2), sixteen = f.tensor(16);
  EXPECT_THROW(f.group.all_gather(four, four), ShapeError);
  EXPECT_THROW(f.group.all_gather(four, f.tensor(16, DType::bf16)), ShapeError);
  EXPECT_THROW(f.group.reduce_scatter(two, four), ShapeError);
  EXPECT_THROW(f.group.all_to_all(two, f.tensor(2)), ShapeError) << "2 do not divide into 4 parts";
  EXPECT_THROW(f.group.all_to_all(sixteen, sixteen), ShapeError) << "in and out are one";
  const auto rows = [&](int64_t n, int64_t width = 2) { return f.tensor(n * width).reshape({n, width}); };
  const RowCounts even{{1, 1, 1, 1}, {1, 1, 1, 1}};
  EXPECT_THROW(f.group.all_to_all_v(rows(4), rows(4), {{1, 3}, {2, 2}}), ShapeError) << "counts of 2 ranks";
  EXPECT_THROW(f.group.all_to_all_v(rows(4), rows(4), {{5, -1, 0, 0}, {4, 0, 0, 0}}), ShapeError) << "-1 rows";
  EXPECT_THROW(f.group.all_to_all_v(rows(5), rows(4), even), ShapeError) << "4 rows are sent";
  EXPECT_THROW(f.group.all_to_all_v(rows(4), rows(3), even), ShapeError) << "4 rows come";
  EXPECT_THROW(f.group.all_to_all_v(rows(4), rows(4, 3), even), ShapeError) << "rows of two widths";
  EXPECT_THROW(f.group.all_to_all_v(rows(4), rows(4), {{1, 3, 0, 0}, {2, 2, 0, 0}}), ShapeError)
      << "rank 1 keeps 3 rows and gets 2";
  EXPECT_THROW(f.group.all_to_all_v(sixteen.reshape({4, 4}), sixteen.reshape({4, 4}), even), ShapeError);
  EXPECT_THROW(f.group.broadcast(four, 4), CommError);
  EXPECT_THROW(f.group.gather(four, Tensor(), -1), CommError);
  EXPECT_THROW(f.group.send(four, 1), CommError) << "to itself";
  EXPECT_THROW(f.group.recv(four, 0, 40000), CommError) << "no such tag";
  EXPECT_THROW(f.group.split(-1, 0), CommError);
  f.group.barrier().wait();
  EXPECT_THAT(f.log->calls, ElementsAre("barrier in group of 4"));
}

TEST(StreamCommunicator, roots_need_both_tensors_and_others_their_own) {
  Fixture f;  // rank 1
  EXPECT_NO_THROW(f.group.gather(f.tensor(4), Tensor(), 0));
  EXPECT_THROW(f.group.gather(f.tensor(4), Tensor(), 1), ShapeError);
}

TEST(StreamCommunicator, traffic_counts_what_is_issued) {
  Fixture f;
  f.group.all_gather(f.tensor(10), f.tensor(40));
  f.group.all_reduce(f.tensor(10, DType::bf16));
  const Traffic traffic = f.group.traffic();
  EXPECT_EQ(traffic[Collective::all_gather].elements, 3 * 10);
  EXPECT_EQ(traffic[Collective::all_gather].bytes, 4 * 3 * 10);
  EXPECT_EQ(traffic[Collective::all_reduce].elements, 7 + 3 * 3) << "rank 1 of 4 owns 3 of 10";
  EXPECT_EQ(traffic.total_elements(), 30 + 16);
  EXPECT_EQ(traffic.total_bytes(), 120 + 32);
  const Tensor rows = f.tensor(24).reshape({6, 4});
  f.group.all_to_all_v(rows, f.tensor(16).reshape({4, 4}), {{1, 2, 3, 0}, {0, 2, 1, 1}});
  EXPECT_EQ(f.group.traffic()[Collective::all_to_all_v].elements, 4 * 4) << "4 of 6 rows leave rank 1";
  EXPECT_EQ(f.group.traffic()[Collective::all_to_all_v].bytes, 4 * 4 * 4);
}

TEST(StreamCommunicator, a_timeline_gets_collectives_and_waits) {
  Fixture f;
  const auto timeline = std::make_shared<Timeline>();
  timeline->start();
  f.group.record(timeline);
  f.group.all_gather(f.tensor(4), f.tensor(16)).wait();
  f.group.record(nullptr);
  f.group.barrier().wait();
  const std::vector<TraceEvent> events = timeline->take();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].name, "all_gather");
  EXPECT_EQ(events[0].kind, TraceEventKind::collective);
  EXPECT_EQ(events[0].bytes, 64);
}

TEST(StreamCommunicator, a_subgroup_of_one_needs_no_transport) {
  Fixture f;
  EXPECT_EQ(f.group.split(0, 0)->backend(), "self");
  const auto pair = f.group.split(1, 0);
  EXPECT_EQ(pair->backend(), "recorder");
  EXPECT_EQ(pair->size(), 2);
}

TEST(StreamCommunicator, an_exception_in_flight_cancels_the_transport) {
  const auto log = std::make_shared<Recorder::Log>();
  const auto make = [&] {
    return std::make_unique<StreamCommunicator>(std::make_unique<Recorder>(log, 0, 2),
                                                std::make_shared<Stream>(Stream::Kind::worker, "comm"));
  };
  make();
  EXPECT_FALSE(log->cancelled);
  try {
    const auto group = make();
    fail<IoError>("the disk is full");
  } catch (const IoError&) {
  }
  EXPECT_TRUE(log->cancelled);
}

}  // namespace
}  // namespace nought::stream_communicator_test
