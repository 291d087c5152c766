// NCCL without GPUs: the functions that nccl.h calls, behind the same table, for ranks that are threads of one process,
// each on an emulated device of its own.
//
// It refuses what the library refuses or would not survive: two ranks on one device, buffers of the host, tensors that
// overlap where they must not, a call while another one is still in progress, two streams of one group, a group that is
// destroyed in use. It finds what the library would hang or guess at: ranks whose calls differ, messages whose sizes
// differ, ranks that wait for each other. It runs late on the streams, and adds in the order of a ring, rounding at
// every hop: so bits differ from those of the order of ranks, and with the sizes of tensors.
#include "nought/cuda/backend/nccl.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "cuda_emulation/control.h"
#include "cuda_emulation/nccl_ranks.h"
#include "cuda_emulation/streams.h"
#include "cuda_runtime.h"

namespace nought::emulation {
namespace {

using namespace cuda::nccl;

struct State {
  std::mutex mutex;
  std::map<std::string, std::shared_ptr<Clique>> cliques;
  int64_t ids = 0;
  std::atomic<int64_t> launches = 0;
  std::atomic<int> ends = 0;
};
State& state() {
  static State state;
  return state;
}

thread_local std::string last_text;
thread_local int depth = 0;
struct Call {
  End* end;
  Op op;
  cudaStream_t stream;
};
thread_local std::vector<Call> collected;

int refuse(int result, std::string text) {
  last_text = std::move(text);
  return result;
}

std::shared_ptr<End>& own(void* comm) { return *static_cast<std::shared_ptr<End>*>(comm); }

bool on_device(const void* at, size_t bytes) {
  const auto* const begin = static_cast<const std::byte*>(at);
  for (const std::byte* const each : {begin, begin + (bytes > 0 ? bytes - 1 : 0)}) {
    cudaPointerAttributes attributes;
    cudaPointerGetAttributes(&attributes, each);
    if (attributes.type != cudaMemoryTypeDevice) return false;
  }
  return true;
}

/// "" if the buffers may be used so.
std::string wrong_buffers(const Op& op, size_t rank, size_t ranks) {
  const size_t part = op.bytes();
  const size_t read = op.kind == Kind::reduce_scatter ? part * ranks : part,
               written = op.kind == Kind::all_gather ? part * ranks : part;
  const bool reads = op.kind != Kind::receive;
  const bool writes = op.kind != Kind::send;
  if (reads && !on_device(op.from, read)) return "what is sent does not lie on a device";
  if (writes && !on_device(op.to, written)) return "what is received does not lie on a device";
  if (!reads || !writes || op.from + read <= op.to || op.to + written <= op.from) return "";
  const bool in_place = op.kind == Kind::all_gather       ? op.from == op.to + rank * part
                        : op.kind == Kind::reduce_scatter ? op.to == op.from + rank * part
                                                          : op.from == op.to;
  return in_place ? "" : "what is sent and what is received overlap";
}

int launch_collected() {
  const std::vector<Call> calls = std::exchange(collected, {});
  if (calls.empty()) return kSuccess;
  End& end = *calls.front().end;
  Clique& clique = *end.clique;
  const std::lock_guard lock(clique.mutex);
  const auto launch = std::make_shared<Launch>();
  for (const Call& call : calls) {
    if (call.end != &end || call.stream != calls.front().stream)
      return refuse(kInvalidUsage, "a group of calls has two groups of ranks, or two streams");
    if (!call.op.message() && calls.size() > 1) return refuse(kInvalidUsage, "a collective among other calls");
    launch->ops.push_back(call.op);
  }
  if (end.stream != nullptr && end.stream != calls.front().stream)
    return refuse(kInvalidUsage, "a second stream for one group");
  if (!end.settled || end.finalized) return refuse(kInvalidUsage, "a call before the one in progress has ended");
  if (clique.fault != kSuccess) return refuse(clique.fault, clique.text);
  end.stream = calls.front().stream;
  if (!launch->ops.front().message()) launch->sequence = end.collectives++;
  end.unfinished.push_back(launch);
  const auto shared = clique.ends[static_cast<size_t>(end.rank)];
  launch->done = stream_of(end.stream).submit([shared, launch] { run_launch(shared, launch); });
  ++state().launches;
  clique.changed.notify_all();
  if (std::exchange(end.linked, true)) return kSuccess;
  end.settled = false, end.answers_in_progress = 2;
  return kInProgress;
}

int call(void* comm, const Op& op, cudaStream_t stream) {
  End& end = *own(comm);
  int device = -1;
  cudaGetDevice(&device);
  const auto ranks = end.clique->ends.size();
  if (device != end.device) return refuse(kInvalidUsage, "another device is current");
  if (op.count == 0) return refuse(kInvalidArgument, "nothing to do is left to the caller here");
  if (op.other >= static_cast<int>(ranks) || (op.message() && (op.other < 0 || op.other == end.rank)))
    return refuse(kInvalidArgument, "there is no such rank to talk to");
  if (std::string wrong = wrong_buffers(op, static_cast<size_t>(end.rank), ranks); !wrong.empty())
    return refuse(kInvalidArgument, std::move(wrong));
  collected.push_back({&end, op, stream});
  return depth > 0 ? kSuccess : launch_collected();
}

const std::byte* read_at(const void* at) { return static_cast<const std::byte*>(at); }
std::byte* write_at(void* at) { return static_cast<std::byte*>(at); }

int make_unique_id(UniqueId* id) {
  const std::lock_guard lock(state().mutex);
  const std::string text = fmt::format("emulated {}", ++state().ids);
  *id = {};
  std::copy(text.begin(), text.end(), id->bytes);
  state().cliques[text] = std::make_shared<Clique>();
  return kSuccess;
}

int join(void** comm, int size, UniqueId id, int rank, Config* config) {
  if (config->size != sizeof(Config) || config->magic != 0xcafebeef || config->blocking != 0)
    return refuse(kInvalidArgument, "the configuration is not what it was declared as");
  std::shared_ptr<Clique> clique;
  {
    const std::lock_guard lock(state().mutex);
    const auto found = state().cliques.find(id.bytes);
    if (found == state().cliques.end()) return refuse(kInvalidArgument, "nobody made this identity");
    clique = found->second;
  }
  auto end = std::make_shared<End>();
  end->clique = clique, end->rank = rank;
  cudaGetDevice(&end->device);
  const std::lock_guard lock(clique->mutex);
  if (clique->ends.empty()) clique->ends.resize(static_cast<size_t>(size));
  if (size < 1 || static_cast<int>(clique->ends.size()) != size || rank < 0 || rank >= size ||
      clique->ends[static_cast<size_t>(rank)])
    return refuse(kInvalidArgument, "the ranks do not agree on who they are");
  for (const auto& other : clique->ends)
    if (other && other->device == end->device)
      clique->fail(fmt::format("Duplicate GPU detected : rank {} and rank {}", other->rank, rank));
  clique->ends[static_cast<size_t>(rank)] = end;
  ++clique->joined;
  ++state().ends;
  *comm = new std::shared_ptr<End>(end);
  return kInProgress;
}

int ask_fault(void* comm, int* result) {
  End& end = *own(comm);
  Clique& clique = *end.clique;
  const std::lock_guard lock(clique.mutex);
  const bool met = clique.joined == static_cast<int>(clique.ends.size());
  const bool busy = !met || end.answers_in_progress > 0;
  if (met && end.answers_in_progress > 0) --end.answers_in_progress;
  *result = clique.fault != kSuccess ? clique.fault : busy ? kInProgress : kSuccess;
  if (clique.fault != kSuccess) last_text = clique.text;
  end.settled = *result == kSuccess;
  return kSuccess;
}

int finalize(void* comm) {
  End& end = *own(comm);
  const std::lock_guard lock(end.clique->mutex);
  if (!end.unfinished.empty()) return refuse(kInvalidUsage, "the group is in use");
  end.finalized = true;
  return kSuccess;
}

int leave(void* comm) {
  const std::shared_ptr<End> end = own(comm);
  {
    const std::lock_guard lock(end->clique->mutex);
    end->clique->ends[static_cast<size_t>(end->rank)] = nullptr;
    end->clique->changed.notify_all();
  }
  --state().ends;
  delete static_cast<std::shared_ptr<End>*>(comm);
  return kSuccess;
}

int destroy(void* comm) {
  {
    const End& end = *own(comm);
    const std::lock_guard lock(end.clique->mutex);
    if (!end.finalized || !end.unfinished.empty()) return refuse(kInvalidUsage, "the group is in use");
  }
  return leave(comm);
}

int abort(void* comm) {
  {
    End& end = *own(comm);
    const std::lock_guard lock(end.clique->mutex);
    end.aborted = true;
    end.clique->changed.notify_all();
  }
  return leave(comm);
}

}  // namespace

int64_t nccl_launches() { return state().launches; }
int nccl_ends() { return state().ends; }

}  // namespace nought::emulation

namespace nought::cuda {

const NcclFunctions& nccl_functions() {
  using namespace emulation;
  static const NcclFunctions functions{
      .version = [](int* version) { return *version = 22809, 0; },
      .unique_id = make_unique_id,
      .join = join,
      .finalize = finalize,
      .destroy = destroy,
      .abort = abort,
      .fault = ask_fault,
      .error_text = [](int result) { return result == kInvalidUsage ? "invalid usage" : "invalid argument"; },
      .last_error = [](void*) { return last_text.c_str(); },
      .group_start = [] { return ++depth, 0; },
      .group_end = [] { return --depth > 0 ? 0 : launch_collected(); },
      .broadcast =
          [](const void* from, void* to, size_t count, int type, int root, void* comm, cudaStream_t stream) {
            return call(comm, {Kind::broadcast, read_at(from), write_at(to), count, type, root}, stream);
          },
      .all_gather =
          [](const void* from, void* to, size_t count, int type, void* comm, cudaStream_t stream) {
            return call(comm, {Kind::all_gather, read_at(from), write_at(to), count, type}, stream);
          },
      .all_reduce =
          [](const void* from, void* to, size_t count, int type, int /*op*/, void* comm, cudaStream_t stream) {
            return call(comm, {Kind::all_reduce, read_at(from), write_at(to), count, type}, stream);
          },
      .reduce_scatter =
          [](const void* from, void* to, size_t count, int type, int /*op*/, void* comm, cudaStream_t stream) {
            return call(comm, {Kind::reduce_scatter, read_at(from), write_at(to), count, type}, stream);
          },
      .send =
          [](const void* from, size_t count, int type, int peer, void* comm, cudaStream_t stream) {
            return call(comm, {Kind::send, read_at(from), nullptr, count, type, peer}, stream);
          },
      .receive =
          [](void* to, size_t count, int type, int peer, void* comm, cudaStream_t stream) {
            return call(comm, {Kind::receive, nullptr, write_at(to), count, type, peer}, stream);
          }};
  return functions;
}

}  // namespace nought::cuda
