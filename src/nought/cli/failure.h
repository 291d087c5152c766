// Turns an exception of any rank and thread into exactly one line on stderr.
#pragma once

#include <exception>
#include <string>
#include <string_view>

namespace nought {

/// The message of an exception, on one line. A message that contains a table (a ledger) keeps its lines.
std::string describe(const std::exception_ptr& failure);

/// The exit code of a failure: 1; or kRefusedCode for a ConfigError in a run that is supervised (cli/restarts.h), which
/// does not start such a run again.
inline constexpr int kRefusedCode = 78;
inline constexpr const char* kSupervisedVariable = "NOUGHT_SUPERVISED";
int code_of(const std::exception_ptr& failure);
/// Whether a supervisor started this process.
bool is_supervised();

/// The message with every quoted or dumped value cut to 200 bytes, for files from elsewhere hold values of any length.
std::string with_short_values(std::string_view message);

/// Flushes stdout and prints "nought: error: MESSAGE" on stderr, with further lines of the message indented. If there
/// are several ranks, rank 0 prints first. The others wait a while, in which the failure of rank 0 ends them, so that a
/// common error is printed once. A rank that is still there prints its message with "[rank r]".
void print_error(const std::string& message);

/// Makes an exception that no thread catches print its line and end the process with exit code 1, without a core dump.
void catch_failures_of_threads();

/// Makes a page of a mapped file that is gone (SIGBUS) print the file's name and end the process with exit code 1. Open
/// MPI leaves a handler alone that is there before MPI_Init. A SIGBUS at any other address ends the process as before.
void catch_lost_pages();

}  // namespace nought
