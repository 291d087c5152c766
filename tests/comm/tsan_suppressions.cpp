// One report of the thread sanitizer is not a race: libstdc++ counts the owners of an exception with atomics that the
// sanitizer does not see, so that an exception thrown on a communication thread, read by the waiting thread and
// released by the former looks unordered.
#if defined(__SANITIZE_THREAD__)
extern "C" const char* __tsan_default_suppressions();
extern "C" const char* __tsan_default_suppressions() { return "race:std::__exception_ptr::exception_ptr::_M_release"; }
#endif
