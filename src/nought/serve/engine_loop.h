// EngineLoop: runs an InferenceEngine in one thread for requests that come from others.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "nought/infer/inference_engine.h"

namespace nought {

class EngineLoop {
 public:
  /// A request that was handed over. Its number is set and read in the engine's thread.
  struct Ticket {
    uint64_t number = 0;
  };
  using Requests = std::vector<std::pair<InferenceRequest, std::shared_ptr<RequestListener>>>;

  /// max_waiting: how many requests may wait beside those that the engine has room for. heartbeat: how often the ranks
  /// that the engine leads hear of it when there is nothing to compute.
  EngineLoop(InferenceEngine& engine, int64_t max_waiting,
             std::chrono::milliseconds heartbeat = std::chrono::milliseconds(5000))
      : engine_(engine), max_waiting_(max_waiting), heartbeat_(heartbeat) {}

  /// Hands over requests together; none, and an empty list, if not all may wait, or after stop(). Thread safe.
  std::vector<std::shared_ptr<Ticket>> submit(Requests requests);
  void cancel(const std::shared_ptr<Ticket>& ticket);
  /// As they were after the last step. Thread safe.
  InferenceEngine::Counts counts() const;
  /// Whether nothing runs or waits. Thread safe.
  bool idle() const;
  /// Computes in this thread until stop(). What the engine throws ends it, and all requests.
  void run();
  /// Ends run(), which cancels what runs or waits. Thread safe.
  void stop();

 private:
  /// What was handed over since the last call. Waits until there is something, or a heartbeat is due. False: stop().
  bool take_commands(bool waits);
  void work();

  InferenceEngine& engine_;
  int64_t max_waiting_;
  std::chrono::milliseconds heartbeat_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::function<void()>> commands_;
  InferenceEngine::Counts counts_;
  int64_t submitted_ = 0;  // requests in commands_
  bool stops_ = false;
};

}  // namespace nought
