#include "nought/serve/engine_loop.h"

#include <utility>

namespace nought {

std::vector<std::shared_ptr<EngineLoop::Ticket>> EngineLoop::submit(Requests requests) {
  std::vector<std::shared_ptr<Ticket>> tickets;
  const std::lock_guard lock(mutex_);
  const int64_t all = counts_.running + counts_.waiting + submitted_ + std::ssize(requests);
  // After stop() nothing takes what is handed over, and nobody would ever answer it.
  if (stops_ || all > engine_.options().sequences + max_waiting_) return tickets;
  for (auto& [request, listener] : requests) {
    tickets.push_back(std::make_shared<Ticket>());
    ++submitted_;
    commands_.emplace_back(
        [this, ticket = tickets.back(), request = std::move(request), listener = std::move(listener)] {
          try {
            ticket->number = engine_.submit(request, listener);
          } catch (...) {
            listener->on_end(FinishReason::failed, std::current_exception());
          }
        });
  }
  changed_.notify_one();
  return tickets;
}

void EngineLoop::cancel(const std::shared_ptr<Ticket>& ticket) {
  const std::lock_guard lock(mutex_);
  commands_.emplace_back([this, ticket] { engine_.cancel(ticket->number); });
  changed_.notify_one();
}

InferenceEngine::Counts EngineLoop::counts() const {
  const std::lock_guard lock(mutex_);
  InferenceEngine::Counts counts = counts_;
  counts.waiting += submitted_;
  return counts;
}

bool EngineLoop::idle() const {
  const InferenceEngine::Counts now = counts();
  return now.running + now.waiting == 0;
}

void EngineLoop::stop() {
  const std::lock_guard lock(mutex_);
  stops_ = true;
  changed_.notify_one();
}

bool EngineLoop::take_commands(bool waits) {
  std::vector<std::function<void()>> commands;
  int64_t submitted = 0;
  bool stops = false;
  {
    std::unique_lock lock(mutex_);
    if (waits) changed_.wait_for(lock, heartbeat_, [&] { return stops_ || !commands_.empty(); });
    stops = stops_;
    commands.swap(commands_);
    submitted = submitted_;
  }
  for (const auto& command : commands) command();
  const std::lock_guard lock(mutex_);
  counts_ = engine_.counts();
  submitted_ -= submitted;
  return !stops;
}

void EngineLoop::work() {
  for (bool works = false; take_commands(!works);) {
    works = engine_.step();
    if (!works) engine_.keep_alive();
    const std::lock_guard lock(mutex_);
    counts_ = engine_.counts();
  }
}

void EngineLoop::run() {
  try {
    work();
  } catch (...) {
    stop();
    take_commands(/*waits=*/false);
    engine_.cancel_all();
    throw;
  }
  engine_.cancel_all();
  engine_.dismiss();
}

}  // namespace nought
