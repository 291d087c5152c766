#include "nought/io/file_format.h"

#include <charconv>
#include <optional>

#include "nought/base/error.h"
#include "nought/base/json.h"
#include "nought/io/strict_json.h"

namespace nought {

namespace {

/// The version in "NAME-VERSION", or nothing.
std::optional<int64_t> version_in(std::string_view text, std::string_view name) {
  if (!text.starts_with(name) || !text.substr(name.size()).starts_with('-')) return std::nullopt;
  text.remove_prefix(name.size() + 1);
  int64_t version = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), version);
  return error == std::errc() && stop == text.data() + text.size() ? std::optional(version) : std::nullopt;
}

}  // namespace

std::string FileFormat::str() const { return fmt::format("{}-{}", name, version); }

void require_readable(const std::filesystem::path& file, int64_t version, const FileFormat& readable) {
  const FileFormat found{readable.name, version};
  require<IoError>(version <= readable.version,
                   "{}: its format is {}, this program reads up to {}: use the version of nought that wrote it, or a "
                   "newer one",
                   file.string(), found.str(), readable.str());
  require<IoError>(version >= 1, "{}: its format is {}, versions begin with 1: the file is damaged", file.string(),
                   found.str());
}

void require_readable(const std::filesystem::path& file, const Json& format, const FileFormat& readable) {
  const auto version = version_in(format.is_string() ? format.get_ref<const std::string&>() : "", readable.name);
  require<IoError>(version.has_value(), "{}: its format is {}, expected \"{}\": it is another kind of file, or damaged",
                   file.string(), format.is_structured() ? describe_json(format) : excerpt(format.dump()),
                   readable.str());
  require_readable(file, *version, readable);
}

}  // namespace nought
