// A program says which package it is part of.
#include "nought/cli/own_program.h"

#include <filesystem>
#include <fstream>

#include "support/known_paths.h"
#include "support/run_program.h"
#include "support/temp_folder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nought::own_program_test {
namespace {

namespace fs = std::filesystem;

/// What `nought info` says of the package, of a program at a path below a folder that has a package's file or not.
std::string package_line(const std::string& path, const std::string& package) {
  const test::TempFolder folder;
  const fs::path program = folder / path;
  fs::create_directories(program.parent_path());
  fs::copy_file(test::known_path("nought"), program);
  fs::create_directories(folder.path() / "share" / "nought");
  if (!package.empty()) std::ofstream(folder.path() / "share" / "nought" / "package") << package << "\n";
  const test::Ended ended = test::run_program(program.string() + " info");
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  const size_t begin = ended.out.find('\n') + 1;  // behind the version
  return ended.out.substr(begin, ended.out.find('\n', begin) - begin);
}

TEST(OwnProgram, names_the_package_beside_its_folder) {
  EXPECT_EQ(package_line("bin/nought", "Debian package nought 0.1.0"), "  package        Debian package nought 0.1.0");
  EXPECT_EQ(package_line("lib/nought/nought", "archive nought-0.1.0-linux-x86_64"),
            "  package        archive nought-0.1.0-linux-x86_64");
  EXPECT_EQ(package_line("bin/nought", ""), "  package        none: built on this machine or copied");
}

TEST(OwnProgram, lies_at_a_path_that_is_there) { EXPECT_TRUE(fs::exists(own_program())); }

}  // namespace
}  // namespace nought::own_program_test
