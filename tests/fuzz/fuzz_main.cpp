// libFuzzer's entry: one program for each target, chosen by NOUGHT_FUZZ_TARGET.
#include <cstddef>
#include <cstdint>

#include "targets.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  nought::fuzz::NOUGHT_FUZZ_TARGET(std::as_bytes(std::span(data, size)));
  return 0;
}
