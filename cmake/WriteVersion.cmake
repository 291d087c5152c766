# Writes OUTPUT, a source file that knows the version and the commit of SOURCE:
#   cmake -D VERSION=0.1.0 -D SOURCE=DIR -D TEMPLATE=version.cpp.in -D OUTPUT=version.cpp -P WriteVersion.cmake
# COMMIT is 7 digits, with a "+" if tracked files were changed since, or "unknown" where SOURCE is no repository of its
# own (a release archive). OUTPUT is touched only when its text changes, so that nothing is built again without need.
set(COMMIT unknown)
find_program(GIT git)
if(GIT AND EXISTS ${SOURCE}/.git)
  execute_process(
    COMMAND ${GIT} --no-optional-locks -C ${SOURCE} describe --always "--exclude=*" --abbrev=7 --dirty=+
    OUTPUT_VARIABLE described OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(described MATCHES "^[0-9a-f]+[+]?$")
    set(COMMIT ${described})
  endif()
endif()
configure_file(${TEMPLATE} ${OUTPUT} @ONLY)
