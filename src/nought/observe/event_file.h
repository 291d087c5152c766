// EventFile: writes scalars by tag and step as an event file, which TensorBoard shows.
//
// A file is a row of records: length, data and masked CRC-32C (TensorFlow's TFRecord). The data of a record is an Event
// message in protobuf's wire format (tensorflow/core/util/event.proto). A scalar needs four of its fields.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

#include "nought/io/append_file.h"

namespace nought {

/// CRC-32C (Castagnoli) of the bytes.
uint32_t crc32c(std::string_view bytes);

class EventFile {
 public:
  /// Creates the file FOLDER/events.out.tfevents.<time>.<host>.<process>. IoError.
  explicit EventFile(const std::filesystem::path& folder);
  void add_scalar(std::string_view tag, int64_t step, double value);
  const std::filesystem::path& path() const { return path_; }

 private:
  void add_record(std::string_view event);

  std::filesystem::path path_;
  AppendFile file_;
};

}  // namespace nought
