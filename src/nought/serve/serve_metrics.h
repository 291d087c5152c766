// ServeMetrics: what a server has done, as Prometheus reads it: vLLM's names after "nought:".
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "nought/infer/inference_engine.h"

namespace nought {

/// Counts values up to each bound, Prometheus' cumulative buckets.
class Histogram {
 public:
  explicit Histogram(std::vector<double> bounds) : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {}
  void add(double value);
  /// The lines of a histogram of this name; labels: `model_name="..."`.
  std::string lines(const std::string& name, const std::string& labels) const;

 private:
  std::vector<double> bounds_;
  std::vector<int64_t> counts_;
  int64_t count_ = 0;
  double sum_ = 0;
};

/// Thread safe.
class ServeMetrics {
 public:
  void first_token(double seconds);
  void token_after(double seconds);
  void request_ended(FinishReason reason, double seconds, int64_t prompt_tokens, int64_t new_tokens);
  /// The page of /metrics. cache_tokens: how many tokens the cache has room for.
  std::string page(const std::string& model, const InferenceEngine::Counts& counts, int64_t cache_tokens) const;

 private:
  mutable std::mutex mutex_;
  Histogram first_token_{
      {.001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560}};
  Histogram between_{{.01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80}};
  Histogram whole_{{.3, .5, .8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680}};
  std::map<std::string, int64_t> ended_;  // by reason
  int64_t prompt_tokens_ = 0, new_tokens_ = 0;
};

/// "stop", "length", "abort", "error": vLLM's words.
std::string finished_reason(FinishReason reason);

}  // namespace nought
