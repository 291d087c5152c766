#include "nought/comm/thread.h"

#include <algorithm>
#include <exception>
#include <thread>

#include "nought/base/host.h"
#include "nought/comm/reduction.h"
#include "nought/comm/staged.h"
#include "nought/comm/stream_communicator.h"
#include "nought/comm/thread_group.h"

namespace nought {
namespace {

std::shared_ptr<Stream> make_worker(const Context& context, std::string name) {
  std::shared_ptr<Stream> stream = beneath_staging(context).memory->device().make_stream(std::move(name));
  stream->submit(use_one_openmp_thread);
  return stream;
}

class ThreadTransport final : public Transport {
 public:
  ThreadTransport(std::shared_ptr<ThreadGroup> group, int rank, Context context)
      : group_(std::move(group)), rank_(rank), context_(std::move(context)), reduction_(context_.kernels) {}

  int rank() const override { return rank_; }
  int size() const override { return group_->size(); }
  std::string_view backend() const override { return "thread"; }

  void run(const Call& call, const Collective& collective) override {
    switch (collective.kind) {
      case Collective::send:
        return post(call, collective)(call);
      case Collective::recv:
        return receive(call, collective);
      default:
        return round({.call = &call, .collective = &collective}, [&] {
          if (collective.reduces()) return reduce(collective);
          for (int peer = 0; peer < size(); ++peer) take(call, collective, peer);
        });
    }
  }

  Posted post(const Call&, const Collective& send) override {
    return [this, to = send.root, message = group_->post(rank_, send.root, send.tag, send.in)](const Call& call) {
      group_->await_reader(call, *message, to);
    };
  }

  std::unique_ptr<Transport> split(const Call& call, int color, int key) override {
    std::shared_ptr<ThreadGroup> group;
    std::vector<int> members;  // ranks of this group, in the order of the new one
    const Collective collective{.kind = Collective::split};
    round({.call = &call, .collective = &collective, .color = color, .key = key}, [&] {
      for (int peer = 0; peer < size(); ++peer) {
        if (group_->slot(peer).color == color) members.push_back(peer);
      }
      std::stable_sort(members.begin(), members.end(),
                       [&](int a, int b) { return group_->slot(a).key < group_->slot(b).key; });
      group = group_->subgroup(color, members);
    });
    const auto mine = std::find(members.begin(), members.end(), rank_);
    return std::make_unique<ThreadTransport>(group, static_cast<int>(mine - members.begin()), context_);
  }

  std::shared_ptr<Stream> make_stream() const override { return make_worker(context_, fmt::format("group {}", rank_)); }

  std::exception_ptr peer_failure(const Call& call) override {
    const std::string failure = group_->world().failure();
    if (failure.empty()) return nullptr;
    return std::make_exception_ptr(
        PeerError(fmt::format("{} cannot finish on rank {}: {}", call.str(), call.rank, failure)));
  }

  void cancel() override {
    group_->world().fail_rank(group_->world_rank(rank_), "an exception ended its communicator");
  }

 private:
  void round(ThreadGroup::Slot slot, const std::function<void()>& part) {
    slot.part = &part;
    group_->meet(rank_, slot);
  }

  void receive(const Call& call, const Collective& recv) {
    const auto message = group_->take(call, recv.root, rank_, recv.tag);
    const Tensor& values = message->values;
    require<CommError>(values.dtype() == recv.out.dtype() && values.numel() == recv.out.numel(),
                       "{} on rank {}: rank {} sent {} where {} was expected", call, rank_, recv.root, values,
                       recv.out);
    copy_now(values, recv.out);
    group_->note_read(*message);
  }

  const Collective& of(int peer) const { return *group_->slot(peer).collective; }
  const Tensor& in(int peer) const { return of(peer).input(); }

  /// Copies what a peer, or this rank itself, has for this rank.
  void take(const Call& call, const Collective& collective, int peer) {
    const Tensor to = collective.from(peer, rank_, size());
    if (!to) return;
    const Tensor sent = of(peer).to(rank_, peer, size());
    require<CommError>(sent.numel() == to.numel(), "{} on rank {}: rank {} sent {} where {} was expected", call, rank_,
                       peer, sent, to);
    copy_now(sent, to);
  }

  /// Nobody else reads or writes this rank's part of any tensor. So all_reduce reduces it in place and hands it to all.
  void reduce(const Collective& collective) {
    if (collective.kind == Collective::reduce_scatter) return reduce_part(collective.out, collective.op);
    const Tensor own = part_of(collective.out, rank_, size());
    reduce_part(own, collective.op);
    for (int peer = 0; peer < size(); ++peer) copy_now(own, part_of(in(peer), rank_, size()));
  }

  void reduce_part(const Tensor& out, ReduceOp op) {
    std::vector<Tensor> inputs;
    for (int peer = 0; peer < size(); ++peer) inputs.push_back(part_of(in(peer), rank_, size()));
    reduction_.run(std::move(inputs), out, op);
  }

  std::shared_ptr<ThreadGroup> group_;
  int rank_;
  Context context_;
  Reduction reduction_;
};

std::vector<Context> fresh_contexts(int size) {
  std::vector<Context> contexts;
  for (int rank = 0; rank < size; ++rank) contexts.push_back(Context::cpu());
  return contexts;
}

using Streams = std::vector<std::shared_ptr<Stream>>;

Streams make_streams(const std::vector<Context>& contexts) {
  Streams streams;
  for (size_t rank = 0; rank < contexts.size(); ++rank)
    streams.push_back(make_worker(contexts[rank], fmt::format("comm {}", rank)));
  return streams;
}

std::vector<std::unique_ptr<Communicator>> make_communicators(const std::shared_ptr<ThreadWorld>& world,
                                                              const std::vector<Context>& contexts,
                                                              const Streams& streams) {
  std::vector<int> ranks;
  for (int rank = 0; rank < world->size(); ++rank) ranks.push_back(rank);
  const auto group = std::make_shared<ThreadGroup>(world, ranks);
  std::vector<std::shared_ptr<FlightPage>> pages;
  for (size_t i = 0; i < ranks.size(); ++i) pages.push_back(FlightPage::make());
  std::vector<std::unique_ptr<Communicator>> communicators;
  for (int rank : ranks) {
    const auto i = static_cast<size_t>(rank);
    auto recorder = std::make_shared<FlightRecorder>(pages[i], rank, world->size(), host_name());
    recorder->set_peers(pages);
    auto transport = staged(std::make_unique<ThreadTransport>(group, rank, beneath_staging(contexts[i])), contexts[i]);
    communicators.push_back(
        std::make_unique<StreamCommunicator>(std::move(transport), streams[i], std::move(recorder)));
  }
  return communicators;
}

/// Rethrows the lowest rank's failure; one that only reports a peer's failure gives way to a cause.
void rethrow_first(const std::vector<std::exception_ptr>& failures) {
  std::exception_ptr consequence;
  for (const std::exception_ptr& failure : failures) {
    if (!failure) continue;
    try {
      std::rethrow_exception(failure);
    } catch (const PeerError&) {
      if (!consequence) consequence = failure;
    }
  }
  if (consequence) std::rethrow_exception(consequence);
}

}  // namespace

void run_ranks(int size, const std::function<void(Communicator&)>& body) {
  run_ranks(size, [&](Communicator& communicator, const Context&) { body(communicator); });
}

void run_ranks(int size, const std::function<void(Communicator&, const Context&)>& body) {
  require<CommError>(size > 0, "cannot run {} ranks: at least one is needed", size);
  run_ranks(fresh_contexts(size), body);
}

void run_ranks(const std::vector<Context>& contexts, const std::function<void(Communicator&, const Context&)>& body) {
  const int size = static_cast<int>(contexts.size());
  require<CommError>(size > 0, "cannot run {} ranks: at least one is needed", size);
  const auto world = std::make_shared<ThreadWorld>(size);
  const Streams streams = make_streams(contexts);
  const auto communicators = make_communicators(world, contexts, streams);
  std::vector<std::exception_ptr> failures(static_cast<size_t>(size));
  const auto run_rank = [&](int rank) {
    const auto i = static_cast<size_t>(rank);
    use_one_openmp_thread();
    try {
      body(*communicators[i], contexts[i]);
      streams[i]->synchronize();          // a rank has ended when its last collective has,
      contexts[i].stream->synchronize();  // and its last kernel
    } catch (const std::exception& error) {
      failures[i] = std::current_exception();
      world->fail_rank(rank, error.what());
    } catch (...) {
      failures[i] = std::current_exception();
      world->fail_rank(rank, "an unknown exception");
    }
    note_phase(*communicators[i], "its end");
    world->finish_rank(rank);
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) threads.emplace_back(run_rank, rank);
  for (std::thread& thread : threads) thread.join();
  rethrow_first(failures);
}

}  // namespace nought
