#include "nought/comm/linked_transport.h"

#include <algorithm>
#include <utility>

#include "nought/comm/link_watch.h"
#include "nought/comm/staged.h"

namespace nought {
namespace {

/// What the groups of a rank share.
struct Links {
  Context context;
  LinkedDevice& device;
  LinkOptions options;
  LinkWatch watch;

  Links(const Context& of, LinkedDevice& linked_device, const LinkOptions& wishes)
      : context(of), device(linked_device), options(wishes), watch(linked_device) {}
};

/// How long ranks wait for each other where they meet.
constexpr std::chrono::minutes kMeetingPatience(5);

LinkedDevice::Combine combine_of(ReduceOp op) {
  using Combine = LinkedDevice::Combine;
  return op == ReduceOp::sum ? Combine::sum : op == ReduceOp::max ? Combine::max : Combine::min;
}

/// The first rank of the group makes an identity, and tells the others.
std::unique_ptr<DeviceGroup> meet(Transport& ranks, const LinkedDevice& device) {
  const auto call = [&](std::string_view name, int64_t bytes) {
    return Call{.name = name,
                .bytes = bytes,
                .rank = ranks.rank(),
                .size = ranks.size(),
                .timeout = kMeetingPatience,
                .deadline = std::chrono::steady_clock::now() + kMeetingPatience};
  };
  const Context host = Context::cpu();
  const auto told = [&](int64_t bytes) { return host.zeros({bytes}, DType::u8, Category::communication); };
  std::vector<std::byte> id;
  const Tensor length = host.zeros({1}, DType::i64, Category::communication);
  if (ranks.rank() == 0) {
    id = device.make_group_id();
    *length.data<int64_t>() = std::ssize(id);
  }
  ranks.broadcast(call("length of an identity", length.bytes()), length.in_flight(), 0);
  const Tensor text = told(*length.data<int64_t>());
  std::copy(id.begin(), id.end(), text.raw());
  ranks.broadcast(call("identity of a group", text.bytes()), text.in_flight(), 0);
  return device.join({text.raw(), static_cast<size_t>(text.bytes())}, ranks.rank(), ranks.size(), kMeetingPatience);
}

class LinkedTransport final : public Transport {
 public:
  LinkedTransport(std::unique_ptr<Transport> beneath, std::shared_ptr<Links> links, std::unique_ptr<DeviceGroup> group)
      : beneath_(std::move(beneath)),
        links_(std::move(links)),
        lane_(links_->context.memory->device().make_stream("links")),
        group_(std::move(group)) {
    if (auto* const timed = dynamic_cast<TimedStream*>(lane_.get())) timed->moment();  // while nobody waits there
    links_->watch.join(*group_, [this](const Call& call) { return beneath_->peer_failure(call); });
  }
  ~LinkedTransport() override { links_->watch.leave(*group_); }

  int rank() const override { return beneath_->rank(); }
  int size() const override { return beneath_->size(); }
  std::string_view backend() const override { return beneath_->backend(); }

  std::shared_ptr<Stream> lane() const override { return lane_; }
  bool rides(Collective::Kind collective, const Tensor& payload, int tag) const override {
    const bool reduces = collective == Collective::reduce || collective == Collective::all_reduce ||
                         collective == Collective::reduce_scatter;
    return is_far(payload) && tag == 0 && !(reduces && size() > links_->device.most_inputs());
  }
  void watch(const Call& call, const Event& done) override { links_->watch.add(*group_, call, done); }

  void broadcast(const Call& call, const Tensor& tensor, int root) override {
    if (!on_lane(call)) return beneath_->broadcast(call, tensor, root);
    group_->broadcast(lane_of(call), tensor.raw(), bytes_of(tensor), root);
  }

  void gather(const Call& call, const Tensor& in, const Tensor& out, int root) override {
    if (!on_lane(call)) return beneath_->gather(call, in, out, root);
    if (rank() != root) return exchange(call, {{root, in.raw(), bytes_of(in)}}, {});
    require_far(call, out);
    std::vector<DevicePart> received;
    for_each_peer([&](int peer) { received.push_back(device_part(part_of(out, peer, size()), peer)); });
    keep(call, in, part_of(out, rank(), size()));
    exchange(call, {}, received);
  }

  void all_gather(const Call& call, const Tensor& shard, const Tensor& full) override {
    if (!on_lane(call)) return beneath_->all_gather(call, shard, full);
    require_far(call, shard);
    group_->all_gather(lane_of(call), shard.raw(), full.raw(), bytes_of(shard));
  }

  void scatter(const Call& call, const Tensor& in, const Tensor& out, int root) override {
    if (!on_lane(call)) return beneath_->scatter(call, in, out, root);
    if (rank() != root) return exchange(call, {}, {{root, out.raw(), bytes_of(out)}});
    require_far(call, in);
    std::vector<DevicePart> sent;
    for_each_peer([&](int peer) { sent.push_back(device_part(part_of(in, peer, size()), peer)); });
    keep(call, part_of(in, rank(), size()), out);
    exchange(call, sent, {});
  }

  void all_to_all(const Call& call, const Tensor& in, const Tensor& out) override {
    if (!on_lane(call)) return beneath_->all_to_all(call, in, out);
    require_far(call, out);
    exchange_parts(
        call, [&](int peer) { return part_of(in, peer, size()); },
        [&](int peer) { return part_of(out, peer, size()); });
  }

  void all_to_all_v(const Call& call, const Tensor& in, const Tensor& out, const RowCounts& counts) override {
    if (!on_lane(call)) return beneath_->all_to_all_v(call, in, out, counts);
    require_far(call, out);
    exchange_parts(
        call, [&](int peer) { return rows_of(in, counts.sent, peer); },
        [&](int peer) { return rows_of(out, counts.received, peer); });
  }

  void reduce_scatter(const Call& call, const Tensor& full, const Tensor& shard, ReduceOp op) override {
    if (!on_lane(call)) return beneath_->reduce_scatter(call, full, shard, op);
    require_far(call, shard);
    if (by_library(op))
      return group_->sum_in_parts(lane_of(call), full.raw(), shard.raw(), shard.numel(), shard.dtype());
    reduce_parts(call, full, shard, op, [](const Tensor& /*sum*/, Interval /*of*/) {});
  }

  /// Nobody else reads or writes this rank's part of its tensor, so it is reduced in place, and told to all.
  void all_reduce(const Call& call, const Tensor& tensor, ReduceOp op) override {
    if (!on_lane(call)) return beneath_->all_reduce(call, tensor, op);
    if (by_library(op)) return group_->sum_for_all(lane_of(call), tensor.raw(), tensor.numel(), tensor.dtype());
    const Tensor own = part_of(tensor, rank(), size());
    reduce_parts(call, tensor, own, op, [](const Tensor& /*sum*/, Interval /*of*/) {});
    if (tensor.numel() % size() == 0) return group_->all_gather(lane_of(call), own.raw(), tensor.raw(), bytes_of(own));
    std::vector<DevicePart> sent, received;
    for_each_peer([&](int peer) {
      sent.push_back(device_part(own, peer));
      received.push_back(device_part(part_of(tensor, peer, size()), peer));
    });
    exchange(call, sent, received);
  }

  /// Each rank reduces its part, and sends it to root segment by segment.
  void reduce(const Call& call, const Tensor& in, const Tensor& out, int root, ReduceOp op) override {
    if (!on_lane(call)) return beneath_->reduce(call, in, out, root, op);
    const bool is_root = rank() == root;
    if (is_root) require_far(call, out);
    if (by_library(op))
      return group_->sum_on_root(lane_of(call), in.raw(), is_root ? out.raw() : nullptr, in.numel(), in.dtype(), root);
    const Tensor own = is_root ? part_of(out, rank(), size()) : Tensor();
    reduce_parts(call, in, own, op, [&](const Tensor& sum, Interval of) {
      if (!is_root) return exchange(call, {device_part(sum, root)}, {});
      std::vector<DevicePart> received;
      for_each_peer([&](int peer) { received.push_back(device_part(segment_of(out, peer, of), peer)); });
      exchange(call, {}, received);
    });
  }

  void send(const Call& call, const Tensor& tensor, int destination, int tag) override {
    if (!on_lane(call)) return beneath_->send(call, tensor, destination, tag);
    const Tensor message = room(call, tensor.numel(), tensor.dtype());
    keep(call, tensor, message);
    exchange(call, {device_part(message, destination)}, {});
  }
  Posted post(const Call& call, const Tensor& tensor, int destination, int tag) override {
    if (!on_lane(call)) return beneath_->post(call, tensor, destination, tag);
    exchange(call, {device_part(tensor, destination)}, {});
    return [](const Call&) {};
  }
  void recv(const Call& call, const Tensor& tensor, int source, int tag) override {
    if (!on_lane(call)) return beneath_->recv(call, tensor, source, tag);
    exchange(call, {}, {device_part(tensor, source)});
  }
  void send_recv(const Call& call, const Tensor& sent, int destination, const Tensor& received, int source) override {
    require_far(call, received);
    exchange(call, {device_part(sent, destination)}, {device_part(received, source)});
  }
  void barrier(const Call& call) override { beneath_->barrier(call); }

  /// A group of one has nothing to send.
  std::unique_ptr<Transport> split(const Call& call, int color, int key) override {
    auto ranks = beneath_->split(call, color, key);
    if (ranks->size() == 1) return ranks;
    auto group = meet(*ranks, links_->device);
    return std::make_unique<LinkedTransport>(std::move(ranks), links_, std::move(group));
  }
  std::shared_ptr<Stream> make_stream() const override { return beneath_->make_stream(); }
  std::exception_ptr peer_failure(const Call& call) override { return beneath_->peer_failure(call); }
  void cancel() override {
    beneath_->cancel();
    links_->watch.cut(std::make_exception_ptr(CommError("an exception ended the links of this rank")));
  }

 private:
  /// The stream of the host's thread runs what does not ride.
  bool on_lane(const Call& call) const { return call.stream != nullptr && call.stream == lane_.get(); }
  Stream& lane_of(const Call& call) const {
    if (const auto failure = links_->device.failure()) std::rethrow_exception(failure);
    return *call.stream;
  }
  bool by_library(ReduceOp op) const { return links_->options.library_sums && op == ReduceOp::sum; }
  static size_t bytes_of(const Tensor& tensor) { return static_cast<size_t>(tensor.bytes()); }
  static DevicePart device_part(const Tensor& tensor, int rank) { return {rank, tensor.raw(), bytes_of(tensor)}; }
  static void require_far(const Call& call, const Tensor& tensor) {
    require<CommError>(is_far(tensor), "{}: one tensor lies on the device and {} on the host; both belong on one side",
                       call, tensor);
  }
  template <class F>
  void for_each_peer(const F& f) const {
    for (int peer = 0; peer < size(); ++peer)
      if (peer != rank()) f(peer);
  }

  /// Memory of the device that the call keeps until it is done. It is given in the order of the compute stream, for
  /// which the lane waits once more.
  Tensor room(const Call& call, int64_t elements, DType dtype) const {
    call.rooms->push_back(
        Tensor::empty(*links_->context.memory, {elements}, dtype, Category::communication).in_flight());
    call.stream->wait(links_->context.stream->record());
    return call.rooms->back();
  }
  /// A copy within this rank.
  void keep(const Call& call, const Tensor& from, const Tensor& to) const {
    if (from.raw() != to.raw() && from.numel() > 0) lane_of(call).copy_bytes(from.raw(), to.raw(), bytes_of(from));
  }
  void exchange(const Call& call, const std::vector<DevicePart>& sent, const std::vector<DevicePart>& received) const {
    group_->exchange(lane_of(call), sent, received);
  }
  template <class Sent, class Received>
  void exchange_parts(const Call& call, const Sent& sent_to, const Received& received_from) const {
    std::vector<DevicePart> sent, received;
    for_each_peer([&](int peer) {
      sent.push_back(device_part(sent_to(peer), peer));
      received.push_back(device_part(received_from(peer), peer));
    });
    keep(call, sent_to(rank()), received_from(rank()));
    exchange(call, sent, received);
  }

  /// Of the rank's part of `whole`, the elements of this interval that there are.
  Tensor segment_of(const Tensor& whole, int of_rank, Interval elements) const {
    const Tensor part = part_of(whole, of_rank, size());
    const Interval there = intersect(elements, {0, part.numel()});
    return there.empty() ? part.flat(0, 0) : part.flat(there.begin, there.end);
  }

  /// own = this rank's part of the reduction of all ranks' `whole`; where it is undefined, each segment of it is a
  /// room. done(segment, its interval in the parts) comes behind each.
  template <class Done>
  void reduce_parts(const Call& call, const Tensor& whole, const Tensor& own, ReduceOp op, const Done& done) const {
    constexpr int64_t kGrain = 64;  // elements
    const int64_t longest = ceil_div(whole.numel(), int64_t{size()});
    const int64_t most =
        std::max(kGrain, links_->options.room_bytes / size_of(whole.dtype()) / size() / kGrain * kGrain);
    const int64_t length = std::min(longest, most), stride = round_up(length, kGrain);
    const Tensor rooms = room(call, size() * stride, whole.dtype());
    const auto room_of = [&](int peer, int64_t count) { return rooms.flat(peer * stride, peer * stride + count); };
    for (int64_t begin = 0; begin < longest; begin += length) {
      const Interval elements{begin, std::min(begin + length, longest)};
      const Tensor mine = segment_of(whole, rank(), elements);
      const int64_t count = mine.numel();
      std::vector<DevicePart> sent, received;
      for_each_peer([&](int peer) {
        sent.push_back(device_part(segment_of(whole, peer, elements), peer));
        received.push_back(device_part(room_of(peer, count), peer));
      });
      exchange(call, sent, received);
      const Tensor sum = own ? intersect_of(own, begin, count) : room_of(rank(), count);
      std::vector<const std::byte*> inputs;
      for (int peer = 0; peer < size(); ++peer)
        inputs.push_back(peer == rank() ? mine.raw() : room_of(peer, count).raw());
      if (count > 0) links_->device.combine(lane_of(call), combine_of(op), inputs, sum.raw(), count, whole.dtype());
      done(sum, elements);
    }
  }
  static Tensor intersect_of(const Tensor& own, int64_t begin, int64_t count) {
    return count == 0 ? own.flat(0, 0) : own.flat(begin, begin + count);
  }

  std::unique_ptr<Transport> beneath_;
  std::shared_ptr<Links> links_;
  std::shared_ptr<Stream> lane_;
  std::unique_ptr<DeviceGroup> group_;  // goes first
};

}  // namespace

void link(std::unique_ptr<Transport>& transport, const Context& context, const LinkOptions& options) {
  auto* const device = dynamic_cast<LinkedDevice*>(&context.memory->device());
  require<DeviceError>(device != nullptr, "{} has no links", context.memory->device().name());
  auto group = meet(*transport, *device);
  transport = std::make_unique<LinkedTransport>(std::move(transport),
                                                std::make_shared<Links>(context, *device, options), std::move(group));
}

}  // namespace nought
