# Floors: one library per folder of src/. A floor sees the headers of the floors it links, and no others, so that a wrong
# include does not compile. tools/include_graph.py draws the same order and a test checks it.

# Headers of src/<floor> are included as "<floor>/name.hpp": a folder that holds nothing but that floor is what targets search.
function(mhla_share_headers target visibility floor)
  set(root "${PROJECT_BINARY_DIR}/floors/${floor}")
  file(MAKE_DIRECTORY "${root}")
  file(CREATE_LINK "${PROJECT_SOURCE_DIR}/src/${floor}" "${root}/${floor}" SYMBOLIC)
  target_include_directories(${target} ${visibility} $<BUILD_INTERFACE:${root}>)
endfunction()

# mhla_object_floor(FLOOR SOURCE...): a part of libmhla, compiled on its own.
function(mhla_object_floor floor)
  add_library(mhla_${floor} OBJECT ${ARGN})
  target_include_directories(mhla_${floor} PUBLIC "${PROJECT_SOURCE_DIR}/include")
  mhla_share_headers(mhla_${floor} PUBLIC ${floor})
  target_link_libraries(mhla_${floor} PRIVATE mhla_settings)
endfunction()

# mhla_floor(FLOOR LINKED...): a static library of the program, of all sources below src/<floor>.
function(mhla_floor floor)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/${floor}/*.cpp")
  list(REMOVE_ITEM sources ${MHLA_LEFT_OUT})
  add_library(mhla_${floor} STATIC ${sources})
  mhla_share_headers(mhla_${floor} PUBLIC ${floor})
  target_link_libraries(mhla_${floor} PUBLIC ${ARGN} PRIVATE mhla_settings)
endfunction()
