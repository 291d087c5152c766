// EngineLoop: runs an InferenceEngine in one thread for requests that come from others.
#pragma once

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

  /// max_waiting: how many requests may wait beside those that the engine has room for.
  EngineLoop(InferenceEngine& engine, int64_t max_waiting) : engine_(engine), max_waiting_(max_waiting) {}

  /// Hands over requests together; none, and an empty list, if not all may wait. Thread safe.
  std::vector<std::shared_ptr<Ticket>> submit(Requests requests);
  void cancel(const std::shared_ptr<Ticket>& ticket);
  /// As they were after the last step. Thread safe.
  InferenceEngine::Counts counts() const;
  /// Whether nothing runs or waits. Thread safe.
  bool idle() const;
  /// Computes in this thread until stop().
  void run();
  /// Ends run(), which cancels what runs or waits. Thread safe.
  void stop();

 private:
  InferenceEngine& engine_;
  int64_t max_waiting_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::function<void()>> commands_;
  InferenceEngine::Counts counts_;
  int64_t submitted_ = 0;  // requests in commands_
  bool stops_ = false;
};

}  // namespace nought
