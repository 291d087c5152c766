// Failures: how an exception becomes exactly one line on stderr, from whichever rank and thread it comes.
#pragma once

#include <exception>
#include <string>

namespace nought {

/// What the exception says, on one line; a message that is a table of several lines (a ledger) stays one.
std::string describe(const std::exception_ptr& failure);

/// "nought: error: MESSAGE" on stderr, after what was printed so far. Of several ranks, rank 0 has the first word: the
/// others wait until its failure has ended them, so that a common error is printed once, and then sign with "[rank r]".
void print_error(const std::string& message);

/// An exception that no thread caught prints its line and ends the process with 1, instead of a core dump.
void catch_failures_of_threads();

}  // namespace nought
