// The records of an event file, read as TensorFlow's reader does.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "nought/observe/event_file.h"

namespace nought::test {

/// Each record is its length, checksum, data, checksum.
inline std::vector<std::string> records_of(const std::string& bytes) {
  std::vector<std::string> records;
  const auto number = [&](size_t at, size_t count) {
    uint64_t value = 0;
    std::memcpy(&value, bytes.data() + at, count);
    return value;
  };
  const auto unmasked = [](uint64_t masked) {
    const uint32_t rotated = static_cast<uint32_t>(masked) - 0xA282EAD8u;
    return (rotated >> 17) | (rotated << 15);
  };
  for (size_t at = 0; at < bytes.size();) {
    const size_t length = number(at, 8);
    EXPECT_EQ(crc32c(std::string_view(bytes).substr(at, 8)), unmasked(number(at + 8, 4)));
    records.push_back(bytes.substr(at + 12, length));
    EXPECT_EQ(crc32c(records.back()), unmasked(number(at + 12 + length, 4)));
    at += 16 + length;
  }
  return records;
}

}  // namespace nought::test
