# SentencePiece: the installed library, or the copy that tools/bootstrap.sh left in .deps for machines where nothing can be
# installed.
find_path(MHLA_SENTENCEPIECE_INCLUDE sentencepiece_processor.h PATHS "${MHLA_DEPS_INCLUDE}")
find_library(MHLA_SENTENCEPIECE_LIBRARY NAMES sentencepiece PATHS "${MHLA_DEPS_INCLUDE}/../lib")
if(NOT MHLA_SENTENCEPIECE_INCLUDE OR NOT MHLA_SENTENCEPIECE_LIBRARY)
  message(FATAL_ERROR "SentencePiece is missing (Debian: libsentencepiece-dev); run tools/bootstrap.sh")
endif()
add_library(sentencepiece INTERFACE IMPORTED GLOBAL)
target_include_directories(sentencepiece SYSTEM INTERFACE "${MHLA_SENTENCEPIECE_INCLUDE}")
target_link_libraries(sentencepiece INTERFACE "${MHLA_SENTENCEPIECE_LIBRARY}")
