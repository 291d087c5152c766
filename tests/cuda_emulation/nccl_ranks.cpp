#include "cuda_emulation/nccl_ranks.h"

#include <algorithm>
#include <cstring>

#include "nought/tensor/late.h"

namespace nought::emulation {
namespace {

using cuda::nccl::kSuccess;

/// A late stream runs what its own rank waits for. On a GPU it would run by itself.
void nudge(const Clique& clique, int rank) {
  const auto& end = clique.ends[static_cast<size_t>(rank)];
  if (end && !end->unfinished.empty()) demand(end->unfinished.front()->done);
}

/// True if ranks that wait, one for the other, end where they began.
bool is_stuck(const Clique& clique, int rank) {
  std::vector<int> next = clique.ends[static_cast<size_t>(rank)]->needs();
  std::vector<bool> seen(clique.ends.size());
  while (!next.empty()) {
    const int at = next.back();
    next.pop_back();
    if (at == rank) return true;
    const auto& end = clique.ends[static_cast<size_t>(at)];
    if (seen[static_cast<size_t>(at)] || !end || !end->needs) continue;
    seen[static_cast<size_t>(at)] = true;
    const std::vector<int> more = end->needs();
    next.insert(next.end(), more.begin(), more.end());
  }
  return false;
}

/// What has failed waits until somebody ends it, as the library's kernels do.
void wait_for_abort(std::unique_lock<std::mutex>& lock, const End& end) {
  end.clique->changed.wait(lock, [&] { return end.aborted; });
}

/// Waits until needs() is empty; false if that does not come.
bool await(std::unique_lock<std::mutex>& lock, End& end, std::function<std::vector<int>()> needs) {
  Clique& clique = *end.clique;
  end.needs = std::move(needs);
  bool good = true;
  while (good) {
    const std::vector<int> missing = end.needs();
    if (missing.empty()) break;
    good = !end.aborted && clique.fault == kSuccess;
    if (good && is_stuck(clique, end.rank)) clique.fail("ranks wait for each other"), good = false;
    for (const int rank : missing) nudge(clique, rank);
    if (good) clique.changed.wait(lock);
  }
  end.needs = nullptr;
  return good;
}

/// Adds what ranks have of an element, beginning behind the owner; each sum is one of the dtype.
template <class T>
T sum_along_ring(const Meeting& meeting, int owner, size_t element) {
  const auto size = static_cast<int>(meeting.ops.size());
  const auto value = [&](int rank) {
    T read;
    std::memcpy(&read, meeting.ops[static_cast<size_t>(rank % size)]->from + element * sizeof(T), sizeof(T));
    return read;
  };
  T sum = value(owner + 1);
  for (int hop = 2; hop <= size; ++hop) sum = static_cast<T>(sum + value(owner + hop));
  return sum;
}

template <class T>
std::vector<T> sums_of(const Meeting& meeting, size_t elements, const std::function<int(size_t)>& owner) {
  std::vector<T> sums(elements);
  for (size_t i = 0; i < elements; ++i) sums[i] = sum_along_ring<T>(meeting, owner(i), i);
  return sums;
}

template <class T>
void reduce(const Meeting& meeting) {
  const Op& first = *meeting.ops[0];
  const size_t size = meeting.ops.size(), count = first.count;
  const auto write = [&](size_t rank, const T* from) { std::memcpy(meeting.ops[rank]->to, from, count * sizeof(T)); };
  if (first.kind == Kind::reduce_scatter) {
    const auto sums = sums_of<T>(meeting, count * size, [&](size_t i) { return static_cast<int>(i / count); });
    for (size_t rank = 0; rank < size; ++rank) write(rank, sums.data() + rank * count);
  } else {
    const auto sums = sums_of<T>(meeting, count, [&](size_t i) { return static_cast<int>(i * size / count); });
    for (size_t rank = 0; rank < size; ++rank) write(rank, sums.data());
  }
}

void perform(const Meeting& meeting) {
  const Op& first = *meeting.ops[0];
  if (first.kind == Kind::broadcast || first.kind == Kind::all_gather) {
    std::vector<std::byte> all;
    for (size_t rank = 0; rank < meeting.ops.size(); ++rank)
      if (first.kind == Kind::all_gather || static_cast<int>(rank) == first.other)
        all.insert(all.end(), meeting.ops[rank]->from, meeting.ops[rank]->from + first.bytes());
    for (const Op* const op : meeting.ops) std::memcpy(op->to, all.data(), all.size());
    return;
  }
  visit_nccl_type(first.type, [&](auto value) { reduce<decltype(value)>(meeting); });
}

/// False if it could not.
bool run_collective(std::unique_lock<std::mutex>& lock, End& end, const Launch& launch) {
  Clique& clique = *end.clique;
  auto& place = clique.meetings[launch.sequence];
  if (!place) place = std::make_shared<Meeting>(), place->ops.resize(clique.ends.size());
  const std::shared_ptr<Meeting> meeting = place;
  const Op& op = launch.ops.front();
  for (const Op* const other : meeting->ops)
    if (other != nullptr && !other->fits(op)) {
      clique.fail(fmt::format("rank {} calls {}, another one {}", end.rank, op.str(), other->str()));
      return false;
    }
  meeting->ops[static_cast<size_t>(end.rank)] = &op;
  if (++meeting->came == static_cast<int>(clique.ends.size())) {
    perform(*meeting);
    meeting->done = true;
    clique.meetings.erase(launch.sequence);
    clique.changed.notify_all();
    return true;
  }
  const bool good = await(lock, end, [&] {
    std::vector<int> missing;
    for (size_t rank = 0; rank < meeting->ops.size() && !meeting->done; ++rank)
      if (meeting->ops[rank] == nullptr) missing.push_back(static_cast<int>(rank));
    return missing;
  });
  if (!good) meeting->ops[static_cast<size_t>(end.rank)] = nullptr;  // the launch goes
  return good;
}

bool run_messages(std::unique_lock<std::mutex>& lock, End& end, const Launch& launch) {
  Clique& clique = *end.clique;
  std::vector<std::pair<int, std::shared_ptr<Mail>>> posted;
  std::vector<const Op*> awaited;
  for (const Op& op : launch.ops) {
    if (op.kind == Kind::receive) {
      awaited.push_back(&op);
      continue;
    }
    posted.emplace_back(op.other, std::make_shared<Mail>(Mail{op.from, op.bytes()}));
    clique.mail[{end.rank, op.other}].push_back(posted.back().second);
  }
  clique.changed.notify_all();
  const auto read = [&](const Op& op) {
    auto& box = clique.mail[{op.other, end.rank}];
    if (box.empty()) return false;
    Mail& mail = *box.front();
    if (mail.bytes != op.bytes()) {
      clique.fail(
          fmt::format("rank {} sends {} bytes, rank {} receives {}", op.other, mail.bytes, end.rank, op.bytes()));
      return false;
    }
    std::memcpy(op.to, mail.from, mail.bytes);
    mail.read = true;
    box.pop_front();
    clique.changed.notify_all();
    return true;
  };
  const auto missing = [&] {
    std::vector<int> ranks;
    for (const Op* const op : awaited)
      if (clique.mail[{op->other, end.rank}].empty()) ranks.push_back(op->other);
    for (const auto& [to, mail] : posted)
      if (!mail->read) ranks.push_back(to);
    return ranks;
  };
  bool good = true;
  while (good) {
    const auto taken = std::remove_if(awaited.begin(), awaited.end(), [&](const Op* op) { return read(*op); });
    const bool progress = taken != awaited.end();
    awaited.erase(taken, awaited.end());
    if (missing().empty() && awaited.empty()) return true;
    good = clique.fault == kSuccess;
    if (progress || !good) continue;
    // Until one thing more is there; whoever asks whether it is stuck sees all that is missing.
    const size_t before = missing().size();
    good = await(lock, end, [&] {
      const std::vector<int> ranks = missing();
      return ranks.size() < before ? std::vector<int>() : ranks;
    });
  }
  for (const auto& [to, mail] : posted) {  // whoever reads it would read memory that is somebody else's
    auto& box = clique.mail[{end.rank, to}];
    box.erase(std::remove(box.begin(), box.end(), mail), box.end());
  }
  return false;
}

}  // namespace

void run_launch(const std::shared_ptr<End>& end, const std::shared_ptr<Launch>& launch) {
  Clique& clique = *end->clique;
  std::unique_lock lock(clique.mutex);
  const bool good = !end->aborted && clique.fault == kSuccess &&
                    (launch->sequence >= 0 ? run_collective(lock, *end, *launch) : run_messages(lock, *end, *launch));
  if (!good) wait_for_abort(lock, *end);
  end->unfinished.pop_front();
  clique.changed.notify_all();
}

}  // namespace nought::emulation
