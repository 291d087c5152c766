# cmake --install: bin/nought, the headers, the static libraries, and a package for find_package(nought), whose target
# nought::nought stands for all of the libraries.
include(CMakePackageConfigHelpers)

get_property(libraries GLOBAL PROPERTY NOUGHT_LIBRARIES)
list(REMOVE_ITEM libraries nought_cli) # the program's own
list(REMOVE_DUPLICATES libraries)

add_library(nought_all INTERFACE)
set_target_properties(nought_all PROPERTIES EXPORT_NAME nought)
target_link_libraries(nought_all INTERFACE ${libraries})
target_compile_features(nought_all INTERFACE cxx_std_20)
add_library(nought::nought ALIAS nought_all)

install(TARGETS nought_all ${libraries} EXPORT noughtTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY src/nought DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        FILES_MATCHING PATTERN "*.h" PATTERN cli EXCLUDE)
if(TARGET nought)
  install(TARGETS nought RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/nought)
install(EXPORT noughtTargets NAMESPACE nought:: DESTINATION ${package_dir})
configure_package_config_file(cmake/noughtConfig.cmake.in noughtConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(noughtConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/noughtConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/noughtConfigVersion.cmake
        DESTINATION ${package_dir})
