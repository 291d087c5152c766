// The kernels that the kernel tests test. A test calls run(op); which backend that means is chosen here and nowhere
// else, so that a new backend is held to all of them by one line of kBackends.
#pragma once

#include <cstdlib>
#include <memory>
#include <string>

#include "nought/kernels/kernels.h"
#ifdef NOUGHT_TEST_CUDA  // in the program that tests the kernels of CUDA
#include "cuda/staged_kernels.h"
#endif

namespace nought::test {

struct BackendChoice {
  std::string_view name;
  std::unique_ptr<Kernels> (*make)();
};

/// Everything that can be tested; the first is tested unless NOUGHT_TEST_BACKEND names another.
inline constexpr BackendChoice kBackends[] = {
#ifdef NOUGHT_TEST_CUDA
    {"cuda", make_staged_kernels},
#endif
    {"cpu", make_cpu_kernels},
    {"reference", make_reference_kernels}};

/// Kernels and the stream that they run on.
class Backend {
 public:
  explicit Backend(std::unique_ptr<Kernels> kernels) : kernels_(std::move(kernels)) {}
  /// Runs the operation to its end.
  template <class Op>
  void run(const Op& op) {
    kernels_->run(op, stream_);
    stream_.synchronize();
  }

 private:
  std::unique_ptr<Kernels> kernels_;
  Stream stream_;
};

/// The name of the backend under test.
inline std::string tested_backend() {
  const char* wish = std::getenv("NOUGHT_TEST_BACKEND");
  return std::string(wish != nullptr ? wish : kBackends[0].name);
}

inline std::unique_ptr<Kernels> make_tested_kernels() {
  const std::string name = tested_backend();
  for (const BackendChoice& choice : kBackends)
    if (choice.name == name) return choice.make();
  fail<ConfigError>("NOUGHT_TEST_BACKEND: no backend is called \"{}\"", name);
}

/// The backend under test.
inline Backend& backend() {
  static Backend backend(make_tested_kernels());
  return backend;
}

template <class Op>
void run(const Op& op) {
  backend().run(op);
}

}  // namespace nought::test
