#include "nought/observe/event_file.h"

#include <array>
#include <bit>
#include <chrono>
#include <string>

#include <unistd.h>

#include "nought/base/error.h"
#include "nought/base/host.h"

namespace nought {

namespace {

constexpr std::array<uint32_t, 256> make_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) != 0 ? 0x82F63B78u : 0u);
    table[i] = value;
  }
  return table;
}

/// The lowest `count` bytes of a number, lowest first.
std::string little_endian(uint64_t value, int count) {
  std::string bytes;
  for (int i = 0; i < count; ++i) bytes += static_cast<char>(value >> (8 * i));
  return bytes;
}

std::string varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
  return bytes += static_cast<char>(value);
}

// Fields of a message: (number << 3 | wire type), then the value.
std::string field(int number, double value) {
  return varint(static_cast<uint64_t>(number) << 3 | 1) + little_endian(std::bit_cast<uint64_t>(value), 8);
}
std::string field(int number, float value) {
  return varint(static_cast<uint64_t>(number) << 3 | 5) + little_endian(std::bit_cast<uint32_t>(value), 4);
}
std::string field(int number, int64_t value) {
  return varint(static_cast<uint64_t>(number) << 3) + varint(static_cast<uint64_t>(value));
}
std::string field(int number, std::string_view bytes) {
  return varint(static_cast<uint64_t>(number) << 3 | 2) + varint(bytes.size()) + std::string(bytes);
}

std::string wall_time() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return field(1, std::chrono::duration<double>(now).count());
}

/// TFRecord's: so that a checksum of data that holds checksums stays a checksum.
uint32_t masked(uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xA282EAD8u; }

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  static constexpr std::array<uint32_t, 256> kTable = make_table();
  uint32_t crc = ~0u;
  for (const char c : bytes) crc = (crc >> 8) ^ kTable[(crc ^ static_cast<uint8_t>(c)) & 0xFF];
  return ~crc;
}

EventFile::EventFile(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  const auto seconds =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  path_ = folder / fmt::format("events.out.tfevents.{}.{}.{}", seconds, host_name(), getpid());
  file_ = AppendFile(path_, "");
  add_record(wall_time() + field(3, "brain.Event:2"));
}

void EventFile::add_scalar(std::string_view tag, int64_t step, double value) {
  const std::string scalar = field(1, tag) + field(2, static_cast<float>(value));  // Summary.Value
  add_record(wall_time() + field(2, step) + field(5, field(1, scalar)));           // Event { Summary { Value } }
}

void EventFile::add_record(std::string_view event) {
  const std::string length = little_endian(event.size(), 8);
  std::string record = length + little_endian(masked(crc32c(length)), 4);
  record += event;
  file_.append(record += little_endian(masked(crc32c(event)), 4));
}

}  // namespace nought
