// Where this program lies, and which package it is part of.
#pragma once

#include <filesystem>
#include <string>

namespace nought {

/// The path of this program's own file. IoError if the kernel does not tell.
std::string own_program();

/// The folder above bin, lib and share of the package that this program is part of; "" if it is of no package but was
/// built here. The file share/nought/package, by scripts/package.sh, marks it.
std::filesystem::path package_folder();

/// What the mark says: "Debian package nought 0.1.0", "archive nought-0.1.0-linux-x86_64"; "" without a package.
std::string own_package();

}  // namespace nought
