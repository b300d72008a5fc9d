# find_package(megavit) gives the target megavit::megavit: the header's directory and what its implementation links.
# One C or C++ file of yours still defines MEGAVIT_IMPLEMENTATION before it includes megavit.h.
get_filename_component(megavit_PREFIX "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)

if(NOT TARGET megavit::megavit)
    add_library(megavit::megavit INTERFACE IMPORTED)
    set_target_properties(megavit::megavit PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${megavit_PREFIX}/include")
    if(UNIX)
        set_target_properties(megavit::megavit PROPERTIES INTERFACE_LINK_LIBRARIES "pthread;m")
    endif()
endif()
