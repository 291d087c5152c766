// A folder that appears whole or not at all: filled under another name, then renamed.
//
// Several processes may fill it, each with files of its own; one of them begins and publishes it.
#pragma once

#include <filesystem>

namespace nought {

/// Where the files of the folder `path` are written until it is published: PATH.partial.
std::filesystem::path partial_folder(const std::filesystem::path& path);

/// Creates the partial folder, empty: what an interrupted save left there is removed. IoError.
void begin_folder(const std::filesystem::path& path);

/// Gives the partial folder its name. A folder that has it changes places with the new one in one step and is then
/// removed: PATH is always one of the two, whole. A file system that cannot do that has PATH.old and PATH.partial alone
/// for a moment. The names are on disk when this returns, so that what came before may go. IoError.
void publish_folder(const std::filesystem::path& path);

}  // namespace nought
