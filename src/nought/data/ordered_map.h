// ordered_map(): makes inputs one after the other, works on them in several threads, and uses the outputs in the order
// of the inputs. So the result does not depend on the number of threads.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <future>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace nought {

/// Threads that take tasks in the order in which they were added. The destructor drops tasks that were not begun, and
/// joins the threads.
class TaskQueue {
 public:
  explicit TaskQueue(int threads) {
    for (int i = 0; i < threads; ++i) workers_.emplace_back([this] { work(); });
  }
  ~TaskQueue() {
    {
      const std::lock_guard lock(mutex_);
      tasks_.clear();  // nobody waits for them any more
      ended_ = true;
    }
    wake_.notify_all();
    for (std::thread& worker : workers_) worker.join();
  }
  TaskQueue(const TaskQueue&) = delete;
  TaskQueue& operator=(const TaskQueue&) = delete;

  void add(std::packaged_task<void()> task) {
    {
      const std::lock_guard lock(mutex_);
      tasks_.push_back(std::move(task));
    }
    wake_.notify_one();
  }

 private:
  void work() {
    while (true) {
      std::packaged_task<void()> task;
      {
        std::unique_lock lock(mutex_);
        wake_.wait(lock, [&] { return ended_ || !tasks_.empty(); });
        if (tasks_.empty()) return;
        task = std::move(tasks_.front());
        tasks_.pop_front();
      }
      task();
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::packaged_task<void()>> tasks_;
  bool ended_ = false;
  std::vector<std::thread> workers_;
};

/// Calls use(input, work(input)) for each input. next() returns a std::optional with the next input; it is empty at the
/// end. next() and use() run in the calling thread, in order; work() runs in `threads` threads. Of several failures,
/// the first in the order of the inputs is thrown.
template <class Next, class Work, class Use>
void ordered_map(int threads, Next&& next, Work&& work, Use&& use) {
  using Input = typename decltype(next())::value_type;
  using Output = decltype(work(std::declval<const Input&>()));
  struct Job {
    Input input;
    std::optional<Output> output;
    std::future<void> done;
  };
  std::deque<Job> jobs;  // whose elements do not move; outlives the queue, whose tasks point into it
  TaskQueue queue(threads);
  const auto use_first = [&] {
    jobs.front().done.get();
    use(jobs.front().input, std::move(*jobs.front().output));
    jobs.pop_front();
  };
  std::exception_ptr no_next;
  while (!no_next) {
    std::optional<Input> input;
    try {
      input = next();
    } catch (...) {
      no_next = std::current_exception();  // thrown when all that came before it was used
    }
    if (!input) break;
    Job& job = jobs.emplace_back(Job{std::move(*input), std::nullopt, {}});
    std::packaged_task<void()> task([&job, &work] { job.output.emplace(work(std::as_const(job.input))); });
    job.done = task.get_future();
    queue.add(std::move(task));
    // Twice as many as threads, so that none waits for the caller to use what is finished.
    if (jobs.size() >= 2 * static_cast<size_t>(threads)) use_first();
  }
  while (!jobs.empty()) use_first();
  if (no_next) std::rethrow_exception(no_next);
}

}  // namespace nought
