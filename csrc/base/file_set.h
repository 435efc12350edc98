#pragma once

#include <set>

#include "base/mapped_file.h"

namespace oxibonsai {

// The mapped files of bytes that somebody reads, each once. Whoever keeps the bytes keeps the
// files.
class FileSet {
 public:
  // Bytes that are in no mapped file need no check.
  void add(const void* data) {
    if (const MappedFile* file = MappedFile::find(data)) files_.insert(file);
  }
  // FormatError where one has been changed since it was mapped.
  void check_unchanged() const {
    for (const MappedFile* file : files_) file->check_unchanged();
  }

 private:
  std::set<const MappedFile*> files_;
};

}  // namespace oxibonsai
