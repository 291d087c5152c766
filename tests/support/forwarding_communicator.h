// A Communicator that hands everything on to another one: a test overrides what it is about.
#pragma once

#include <memory>
#include <utility>

#include "nought/comm/communicator.h"

namespace nought::test {

class ForwardingCommunicator : public Communicator {
 public:
  explicit ForwardingCommunicator(Communicator& inner) : inner_(inner) {}

  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  std::string_view backend() const override { return inner_.backend(); }
  Event submit(Collective collective) override { return inner_.submit(std::move(collective)); }
  void follow(const Event& event) override { inner_.follow(event); }
  std::unique_ptr<Communicator> split(int color, int key) override { return inner_.split(color, key); }
  Traffic traffic() override { return inner_.traffic(); }
  void record(std::shared_ptr<Timeline> timeline) override { inner_.record(std::move(timeline)); }
  Timeline* timeline() const override { return inner_.timeline(); }
  void set_timeout(std::chrono::milliseconds timeout) override { inner_.set_timeout(timeout); }

 protected:
  Communicator& inner() { return inner_; }

 private:
  Communicator& inner_;
};

}  // namespace nought::test
