#include "nought/comm/mpi_engine.h"

#include <algorithm>
#include <thread>
#include <utility>

#include <sys/prctl.h>
#include <unistd.h>

#include "nought/comm/reduction.h"

namespace nought {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;

// MPI counts in int; a longer message goes in several of these.
constexpr int64_t kLongestMessage = int64_t{1} << 30;
// A poll that takes longer than this has moved bytes.
constexpr microseconds kPollWithProgress{10};
constexpr std::chrono::seconds kAbortPatience{5};

/// Calls f(data, bytes) for each message that the tensor is cut into.
template <class F>
void for_each_message(const Tensor& tensor, F f) {
  for (int64_t begin = 0; begin < tensor.bytes(); begin += kLongestMessage) {
    f(tensor.raw() + begin, static_cast<int>(std::min(kLongestMessage, tensor.bytes() - begin)));
  }
}

/// The thread that MPI serves, and how many have asked.
struct Queue {
  std::atomic<uint32_t> asked = 0, serving = 0;
};
Queue& queue() {
  static Queue* queue = new Queue;  // abort() may call MPI when everything else is gone
  return *queue;
}

void prepare_thread() {
  use_one_openmp_thread();
  prctl(PR_SET_TIMERSLACK, 1000UL);  // ns: naps of 20 us would otherwise take 70
}

}  // namespace

MpiLock::MpiLock() {
  Queue& q = queue();
  const uint32_t mine = q.asked.fetch_add(1);
  for (uint32_t serving = q.serving; serving != mine; serving = q.serving) q.serving.wait(serving);
}

MpiLock::~MpiLock() {
  queue().serving.fetch_add(1);
  queue().serving.notify_all();
}

Clock::time_point Pause::after_poll() {
  const Clock::time_point end = now();
  if (end - poll_begin_ > kPollWithProgress) last_progress_ = end;
  if (options_.nap.count() > 0 && end - last_progress_ > options_.spin) {
    using Duration = Clock::duration;
    const Duration shortest = options_.nap, part = (end - last_progress_) / (patient_ ? 8 : 1024);
    std::this_thread::sleep_for(std::clamp<Duration>(part, shortest, std::max<Duration>(shortest, kLongestNap)));
    poll_begin_ = now();
  } else {
    poll_begin_ = end;
  }
  return end;
}

void check_mpi(int code, std::string_view what) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  fail<CommError>("{} failed: {}", what, std::string_view(text, static_cast<size_t>(length)));
}

void MpiRequests::add(MPI_Request request) {
  requests_.push_back(request);
  expected_.push_back(-1);
}

void MpiRequests::send(const Tensor& tensor, int peer, int tag, MPI_Comm group) {
  for_each_message(tensor, [&](std::byte* data, int bytes) {
    MPI_Request request;
    const MpiLock lock;
    check_mpi(MPI_Isend(data, bytes, MPI_BYTE, peer, tag, group, &request), "MPI_Isend");
    add(request);
  });
}

void MpiRequests::receive(const Tensor& tensor, int peer, int tag, MPI_Comm group) {
  for_each_message(tensor, [&](std::byte* data, int bytes) {
    MPI_Request request;
    const MpiLock lock;
    check_mpi(MPI_Irecv(data, bytes, MPI_BYTE, peer, tag, group, &request), "MPI_Irecv");
    add(request);
    expected_.back() = bytes;
  });
}

void MpiRequests::broadcast(const Tensor& tensor, int root, MPI_Comm group) {
  for_each_message(tensor, [&](std::byte* data, int bytes) {
    MPI_Request request;
    const MpiLock lock;
    check_mpi(MPI_Ibcast(data, bytes, MPI_BYTE, root, group, &request), "MPI_Ibcast");
    add(request);
  });
}

void MpiRequests::barrier(MPI_Comm group) {
  MPI_Request request;
  const MpiLock lock;
  check_mpi(MPI_Ibarrier(group, &request), "MPI_Ibarrier");
  add(request);
}

bool MpiRequests::test() {
  if (requests_.empty()) return true;
  std::vector<MPI_Status> statuses(requests_.size());
  int done = 0;
  const MpiLock lock;
  const int code = MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done, statuses.data());
  if (code == MPI_ERR_IN_STATUS) {
    for (const MPI_Status& status : statuses) {
      if (status.MPI_ERROR != MPI_ERR_PENDING) check_mpi(status.MPI_ERROR, "a message");
    }
  }
  check_mpi(code, "MPI_Testall");
  if (!done) return false;
  for (size_t i = 0; i < statuses.size(); ++i) {
    if (expected_[i] < 0) continue;
    int bytes = 0;
    MPI_Get_count(&statuses[i], MPI_BYTE, &bytes);
    require<CommError>(bytes == expected_[i],
                       "rank {} sent {} bytes where {} were expected: ranks must issue the same calls",
                       statuses[i].MPI_SOURCE, bytes, expected_[i]);
  }
  requests_.clear();
  expected_.clear();
  return true;
}

MpiEngine& MpiEngine::instance() {
  static MpiEngine* engine = new MpiEngine;
  return *engine;
}

MpiEngine::MpiEngine() : stream_(std::make_shared<Stream>(Stream::Kind::worker, "mpi")) {}

void MpiEngine::initialize(const MpiOptions& options) {
  int before = 0, provided = 0;
  MPI_Initialized(&before);
  require<CommError>(!before, "MPI was initialised before: a process can join a job once");
  thread_ = std::this_thread::get_id();
  options_ = options;
  prepare_thread();
  check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided), "MPI_Init_thread");
  initialized_ = true;
  takes_threads_ = provided >= MPI_THREAD_SERIALIZED;
  require<CommError>(provided >= MPI_THREAD_FUNNELED, "this MPI library does not work in programs with threads");
  check_mpi(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &farewell_), "MPI_Comm_dup");
}

std::shared_ptr<Stream> MpiEngine::make_stream() const {
  require<CommError>(takes_threads_, "this MPI library takes calls from one thread only, so ranks cannot form groups");
  auto stream = std::make_shared<Stream>(Stream::Kind::worker, "mpi group");
  stream->submit(prepare_thread);
  return stream;
}

void MpiEngine::finalize() {
  if (!usable()) return;
  Call call{.name = "the last barrier", .timeout = timeout()};
  check_mpi(MPI_Comm_rank(farewell_, &call.rank), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(farewell_, &call.size), "MPI_Comm_size");
  call.deadline = Clock::now() + call.timeout;
  MpiRequests requests;
  requests.barrier(farewell_);
  wait(call, requests);
  check_mpi(MPI_Comm_free(&farewell_), "MPI_Comm_free");
  initialized_ = false;
  check_mpi(MPI_Finalize(), "MPI_Finalize");
}

void MpiEngine::check_usable(const Call& call) {
  if (usable()) return;
  const std::lock_guard guard(failure_mutex_);
  if (!failure_.empty()) throw CommError(failure_);
  fail<CommError>("{} cannot run on rank {}: an earlier call failed on this rank", call, call.rank);
}

void MpiEngine::note_failure(const Call& call, const CommError& error) {
  const bool consequence = cancelled_.exchange(true);
  if (consequence) return;
  std::string message = error.what();
  const bool timeout = dynamic_cast<const CollectiveTimeout*>(&error) != nullptr;
  if (!timeout) message = call.with_mismatch(message);
  {
    const std::lock_guard guard(failure_mutex_);
    failure_ = message;
  }
  if (!timeout) throw CommError(message);
}

void MpiEngine::cancel(const std::string& why) {
  if (cancelled_) return;
  {
    const std::lock_guard guard(failure_mutex_);
    failure_ = why;
  }
  cancelled_ = true;
}

void MpiEngine::progress() {
  const MpiLock lock;
  int found = 0;  // nothing is ever sent in that group; any call to MPI lets messages get on
  check_mpi(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, farewell_, &found, MPI_STATUS_IGNORE), "MPI_Iprobe");
}

void MpiEngine::pause_or_fail(const Call& call, Pause& pause) {
  if (abort_code_ != kNoAbort) end_ranks();
  check_usable(call);
  if (pause.after_poll() > call.deadline) call.fail_timeout();
}

void MpiEngine::end_ranks() {
  const MpiLock lock;
  MPI_Abort(MPI_COMM_WORLD, abort_code_);
}

void MpiEngine::abort(int code) {
  if (initialized_) {
    abort_code_ = code;
    if (std::this_thread::get_id() == thread_) end_ranks();
    // Whatever the communication thread does next sees the code: a wait that polls, or, if it is idle, this task.
    stream_->submit([this] { end_ranks(); });
    std::this_thread::sleep_for(kAbortPatience);
  }
  _exit(code);
}

}  // namespace nought
