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
  return adds(op) ? Combine::sum : op == ReduceOp::max ? Combine::max : Combine::min;
}

/// The first rank of the group makes an identity, and tells the others.
std::unique_ptr<DeviceGroup> meet(Transport& ranks, const LinkedDevice& device) {
  const auto broadcast = [&](std::string_view name, const Tensor& tensor) {
    const Call call{.name = name,
                    .bytes = tensor.bytes(),
                    .rank = ranks.rank(),
                    .size = ranks.size(),
                    .timeout = kMeetingPatience,
                    .deadline = std::chrono::steady_clock::now() + kMeetingPatience};
    ranks.run(call, {.kind = Collective::broadcast, .out = tensor.in_flight(), .root = 0});
  };
  const Context host = Context::cpu();
  const auto told = [&](int64_t bytes) { return host.zeros({bytes}, DType::u8, Category::communication); };
  std::vector<std::byte> id;
  const Tensor length = host.zeros({1}, DType::i64, Category::communication);
  if (ranks.rank() == 0) {
    id = device.make_group_id();
    *length.data<int64_t>() = std::ssize(id);
  }
  broadcast("length of an identity", length);
  const Tensor text = told(*length.data<int64_t>());
  std::copy(id.begin(), id.end(), text.raw());
  broadcast("identity of a group", text);
  return device.join({text.raw(), static_cast<size_t>(text.bytes())}, ranks.rank(), ranks.size(), kMeetingPatience);
}

class LinkedTransport final : public Transport {
 public:
  LinkedTransport(std::unique_ptr<Transport> beneath, std::shared_ptr<Links> links, std::unique_ptr<DeviceGroup> group)
      : beneath_(std::move(beneath)),
        links_(std::move(links)),
        stream_(links_->context.memory->device().make_stream("links")),
        group_(std::move(group)) {
    if (auto* const timed = dynamic_cast<TimedStream*>(stream_.get())) timed->moment();  // while nobody waits there
    links_->watch.join(*group_, [this](const Call& call) { return beneath_->peer_failure(call); });
  }
  ~LinkedTransport() override { links_->watch.leave(*group_); }

  int rank() const override { return beneath_->rank(); }
  int size() const override { return beneath_->size(); }
  std::string_view backend() const override { return beneath_->backend(); }

  std::shared_ptr<Stream> device_stream() const override { return stream_; }
  bool enqueues(const Collective& collective) const override {
    return is_far(collective.payload()) && collective.tag == 0 &&
           !(collective.reduces() && size() > links_->device.most_inputs());
  }
  void watch(const Call& call, const Event& done) override { links_->watch.add(*group_, call, done); }

  void run(const Call& call, const Collective& c) override {
    // The stream of the host's thread runs what does not ride.
    const bool enqueued = call.stream != nullptr && call.stream == stream_.get();
    if (enqueued || c.kind == Collective::send_recv)
      c.visit(rank(), [&](const Tensor& tensor, Role) { require_far(call, tensor); });
    if (!enqueued) return beneath_->run(call, c);
    switch (c.kind) {
      case Collective::broadcast:
        return group_->broadcast(lane_of(call), c.out.raw(), bytes_of(c.out), c.root);
      case Collective::all_gather:
        return group_->all_gather(lane_of(call), c.in.raw(), c.out.raw(), bytes_of(c.in));
      case Collective::reduce_scatter:
        return reduce_scatter(call, c);
      case Collective::all_reduce:
        return all_reduce(call, c);
      case Collective::send:
        return exchange(call, {device_part(c.in, c.root)}, {});
      case Collective::recv:
        return exchange(call, {}, {device_part(c.out, c.root)});
      case Collective::send_recv:
        return exchange(call, {device_part(c.in, c.root)}, {device_part(c.out, c.source)});
      default:
        return move(call, c);
    }
  }
  Posted post(const Call& call, const Collective& send) override { return beneath_->post(call, send); }

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
  /// which the device stream waits once more.
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

  /// What is moved and not added up.
  void move(const Call& call, const Collective& c) const {
    std::vector<DevicePart> sent, received;
    for_each_peer([&](int peer) {
      if (const Tensor part = c.to(peer, rank(), size())) sent.push_back(device_part(part, peer));
      if (const Tensor part = c.from(peer, rank(), size())) received.push_back(device_part(part, peer));
    });
    if (const Tensor kept = c.to(rank(), rank(), size())) keep(call, kept, c.from(rank(), rank(), size()));
    exchange(call, sent, received);
  }

  void reduce_scatter(const Call& call, const Collective& c) const {
    if (by_library(c.op))
      return group_->sum_in_parts(lane_of(call), c.in.raw(), c.out.raw(), c.out.numel(), c.out.dtype());
    reduce_parts(call, c.in, c.out, c.op);
  }

  /// Nobody else reads or writes this rank's part of its tensor, so it is reduced in place, and told to all.
  void all_reduce(const Call& call, const Collective& c) const {
    const Tensor& tensor = c.out;
    if (by_library(c.op)) return group_->sum_for_all(lane_of(call), tensor.raw(), tensor.numel(), tensor.dtype());
    const Tensor own = part_of(tensor, rank(), size());
    reduce_parts(call, tensor, own, c.op);
    if (tensor.numel() % size() == 0) return group_->all_gather(lane_of(call), own.raw(), tensor.raw(), bytes_of(own));
    std::vector<DevicePart> sent, received;
    for_each_peer([&](int peer) {
      sent.push_back(device_part(own, peer));
      received.push_back(device_part(part_of(tensor, peer, size()), peer));
    });
    exchange(call, sent, received);
  }

  /// The elements of this interval that there are of the rank's part of `whole`.
  Tensor segment_of(const Tensor& whole, int of_rank, Interval elements) const {
    const Tensor part = part_of(whole, of_rank, size());
    const Interval there = intersect(elements, {0, part.numel()});
    return there.empty() ? part.flat(0, 0) : part.flat(there.begin, there.end);
  }

  /// own = this rank's part of the reduction of all ranks' `whole`.
  void reduce_parts(const Call& call, const Tensor& whole, const Tensor& own, ReduceOp op) const {
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
      std::vector<const std::byte*> inputs;
      for (int peer = 0; peer < size(); ++peer)
        inputs.push_back(peer == rank() ? mine.raw() : room_of(peer, count).raw());
      if (op == ReduceOp::pairwise_sum) inputs = add_pairs(call, std::move(inputs), rooms, stride, count);
      if (count > 0)
        links_->device.combine(lane_of(call), combine_of(op), inputs, own.flat(begin, begin + count).raw(), count,
                               whole.dtype());
    }
  }

  /// Adds neighbours, then sums of neighbours, into the rooms until two are left, or one.
  std::vector<const std::byte*> add_pairs(const Call& call, std::vector<const std::byte*> inputs, const Tensor& rooms,
                                          int64_t stride, int64_t count) const {
    while (inputs.size() > 2) {
      std::vector<const std::byte*> sums;
      for (size_t i = 0; i < inputs.size(); i += 2) {
        if (i + 1 == inputs.size() || count == 0) {
          sums.push_back(inputs[i]);
          continue;
        }
        std::byte* const into = rooms.flat(std::ssize(sums) * stride, std::ssize(sums) * stride + count).raw();
        links_->device.combine(lane_of(call), LinkedDevice::Combine::sum, {inputs[i], inputs[i + 1]}, into, count,
                               rooms.dtype());
        sums.push_back(into);
      }
      inputs = std::move(sums);
    }
    return inputs;
  }

  std::unique_ptr<Transport> beneath_;
  std::shared_ptr<Links> links_;
  std::shared_ptr<Stream> stream_;
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
