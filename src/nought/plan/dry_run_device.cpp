#include "nought/plan/dry_run_device.h"

#include <functional>
#include <string>
#include <utility>

#include "nought/tensor/held_work.h"

namespace nought {

namespace {

enum class Use : uint8_t { compute, other };

/// A task is called as it is submitted, and nothing is left to wait for but what it holds.
class DryRunStream final : public Stream {
 public:
  explicit DryRunStream(Use use) : use_(use) {}
  ~DryRunStream() override { held_->clear(); }
  DryRunStream(const DryRunStream&) = delete;
  DryRunStream& operator=(const DryRunStream&) = delete;

  bool runs_inline() const override { return false; }
  Event submit(std::function<void()> task) override { return submit_with(std::move(task), nullptr); }
  Event submit_with(std::function<void()> task, std::shared_ptr<const void> host_memory) override {
    task();
    const auto point = std::make_shared<Point>(held_);
    if (use_ == Use::other) held_->hold(point->number, std::move(task));
    if (host_memory) held_->hold_host(point->number, std::move(host_memory));
    return Event(point);
  }
  void wait(const Event& event) override {
    const auto* const point = dynamic_cast<const Point*>(event.state().get());
    if (point == nullptr) return event.wait();
    held_->follow(point->of, point->number);
    if (use_ == Use::compute) point->of->passed(point->number);
  }
  Event record() override { return Event(std::make_shared<Point>(held_)); }

 private:
  struct Point final : Event::State {
    explicit Point(std::shared_ptr<HeldWork> stream) : of(std::move(stream)), number(of->mark()) {}
    void settle() override { of->reached(number); }
    bool ready() override { return true; }
    std::exception_ptr error() override { return nullptr; }
    const std::shared_ptr<HeldWork> of;
    const uint64_t number;
  };

  const Use use_;
  const std::shared_ptr<HeldWork> held_ = std::make_shared<HeldWork>();
};

class DryRunDevice final : public Device {
 public:
  explicit DryRunDevice(bool staged) : staged_(staged) {}
  std::string_view name() const override { return "cuda"; }
  void* allocate(size_t /*bytes*/) override { return nullptr; }  // Memory has address space of its own
  void free(void* /*block*/, size_t /*bytes*/) override {}
  bool clears(size_t /*bytes*/) const override { return false; }
  size_t alignment() const override { return cuda::kDeviceAlignment; }
  bool is_host() const override { return false; }
  Device* host_side() override { return staged_ ? cpu_device().get() : nullptr; }
  std::shared_ptr<Stream> compute() const override { return compute_.lock(); }
  std::shared_ptr<Stream> make_stream(std::string /*name*/) const override {
    return std::make_shared<DryRunStream>(Use::other);
  }
  std::shared_ptr<Stream> make_compute() {
    const auto stream = std::make_shared<DryRunStream>(Use::compute);
    compute_ = stream;
    return stream;
  }

 private:
  const bool staged_;
  std::weak_ptr<Stream> compute_;
};

}  // namespace

Context dry_run_gpu(const PlannedGpu& gpu, CountedWork& work, ChosenExperts routing) {
  const auto device = std::make_shared<DryRunDevice>(gpu.staged);
  const auto stream = device->make_compute();
  return {Memory::create_virtual(device),
          make_counting_kernels(work, routing, gpu.product_workspace ? gpu.product_workspace : cuda::limit_of_products),
          stream};
}

}  // namespace nought
