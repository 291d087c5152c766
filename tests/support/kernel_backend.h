// The kernels that the kernel tests test. A test calls run(op); which backend that means is chosen here and nowhere
// else, so that a new backend is held to all of them by one line of kernel_backends(), which each program has.
#pragma once

#include <cstdlib>
#include <memory>
#include <span>
#include <string>

#include "nought/kernels/kernels.h"

namespace nought::test {

struct BackendChoice {
  std::string_view name;
  std::unique_ptr<Kernels> (*make)();
  bool is_slow = false;    // an emulated GPU takes a hundred times as long
  bool is_device = false;  // exponentials and products are its own: those of libraries that we have not written
};

/// Everything that this program can test; the first is tested unless NOUGHT_TEST_BACKEND names another.
std::span<const BackendChoice> kernel_backends();

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

/// The choice that is under test.
inline const BackendChoice& tested_choice() {
  const char* wish = std::getenv("NOUGHT_TEST_BACKEND");
  if (wish == nullptr) return kernel_backends().front();
  for (const BackendChoice& choice : kernel_backends())
    if (choice.name == wish) return choice;
  fail<ConfigError>("NOUGHT_TEST_BACKEND: no backend is called \"{}\"", wish);
}

inline std::string tested_backend() { return std::string(tested_choice().name); }
inline std::unique_ptr<Kernels> make_tested_kernels() { return tested_choice().make(); }

/// The backend under test.
inline Backend& backend() {
  static Backend backend(make_tested_kernels());
  return backend;
}

template <class Op>
void run(const Op& op) {
  backend().run(op);
}

/// True if the case of this number is to run: all of them, and one of `every` on an emulated GPU, which takes a hundred
/// times as long and runs each twice.
inline bool takes_case(int64_t number, int64_t every) { return !tested_choice().is_slow || number % every == 0; }

}  // namespace nought::test
