#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

// What the library asks the operating system for. Only the files of this folder include the
// system's own headers; the build takes posix.cc, windows.cc or wasm.cc. Paths and texts are UTF-8.
namespace oxibonsai::os {

// The system's words for why the last call of this thread has failed.
std::string error_text();

int64_t process_id();

// Files that are read through addresses.

using File = intptr_t;  // a descriptor or a handle
constexpr File kNoFile = -1;

struct FileState {
  uint64_t size;
  int64_t written;  // when, in nanoseconds since the system's epoch
};

// kNoFile where it can't be opened. Others may write to the file, rename it and delete it.
File open_to_read(const std::string& path);
// Nothing where it is no regular file.
std::optional<FileState> file_state(File file);
// The whole file, of which `bytes` is the size, read-only; null where the system refuses.
const uint8_t* map_file(File file, uint64_t bytes);
void unmap_file(const uint8_t* data, uint64_t bytes);
void close_file(File file);
// Takes the whole pages within these bytes out of memory; the next read brings them back.
void release_file_pages(const uint8_t* data, size_t bytes);

// Called with the address of a read of mapped memory that failed; true where the read can be done
// again. It may use nothing but atomics and replace_by_zeros().
using RepairRead = bool (*)(uintptr_t address);
// Has every such read repaired, and hands the others to the handler that was there first. Called
// again, it comes first again. On Windows it does nothing: nobody can cut a file that is mapped
// there, and a disk that fails ends the process.
void repair_failed_reads(RepairRead repair);
// Zeros, from the page that `first` is in to `last`, in place of what is mapped there.
bool replace_by_zeros(uintptr_t first, uintptr_t last);

// Zero-filled memory in whole pages, which free_pages() gives back. Null where the system refuses.

uint8_t* allocate_pages(size_t bytes);
// Zeros to read alone. They take no memory on POSIX systems; Windows counts them as taken.
uint8_t* allocate_zeros(size_t bytes);
// Addresses alone: commit() makes memory of them. POSIX systems do that at the first write.
uint8_t* reserve_pages(size_t bytes);
bool commit(uint8_t* data, size_t bytes);
// The reverse; the addresses stay reserved.
void decommit(uint8_t* data, size_t bytes);
// Gives the memory of the whole pages within these bytes back and leaves them usable. What they
// held is lost.
void discard_pages(uint8_t* data, size_t bytes);
void free_pages(uint8_t* data, size_t bytes);
// Advice only.
void prefer_huge_pages(uint8_t* data, size_t bytes);

// The file name of the library that NVIDIA's driver installs.
extern const char* const kCudaDriverLibrary;
// That of the loader of OpenCL's drivers.
extern const char* const kOpenClLibrary;
// Null, and `reason` in the loader's words, where it can't be opened.
void* open_library(const std::string& path, std::string* reason);
// Null where the library lacks the name.
void* find_symbol(void* library, const char* name);

// Whether the processor, a 64-bit Arm, has the dot products of ARMv8.2.
bool arm_has_dot_products();

}  // namespace oxibonsai::os
