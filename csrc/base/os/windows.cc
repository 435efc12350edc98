#define NOMINMAX
#define WIN32_LEAN_AND_MEAN
#include <windows.h>

#include <climits>
#include <cwchar>
#include <iterator>

#include "base/os/os.h"

namespace oxibonsai::os {
namespace {

// Empty where the text is no UTF-8, or too long for a path.
std::wstring wide(const std::string& text) {
  if (text.empty() || text.size() > SHRT_MAX) return {};
  const int bytes = static_cast<int>(text.size());
  const int units =
      MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, text.data(), bytes, nullptr, 0);
  std::wstring result(static_cast<size_t>(units), L'\0');
  MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, text.data(), bytes, result.data(), units);
  return result;
}

std::string narrow(const wchar_t* text, DWORD units) {
  const int bytes =
      WideCharToMultiByte(CP_UTF8, 0, text, static_cast<int>(units), nullptr, 0, nullptr, nullptr);
  std::string result(static_cast<size_t>(bytes), '\0');
  WideCharToMultiByte(CP_UTF8, 0, text, static_cast<int>(units), result.data(), bytes, nullptr,
                      nullptr);
  return result;
}

// With the prefix that lifts the limit of 260 characters, where the path needs it: the system does
// not resolve "..", "/" and relative paths behind it. Empty where there is no such path, with the
// reason as the thread's last error.
std::wstring wide_path(const std::string& path) {
  std::wstring text = wide(path);
  // A name with a zero inside would open another file.
  if (text.empty() || text.find(L'\0') != std::wstring::npos) {
    SetLastError(ERROR_INVALID_NAME);
    return {};
  }
  const DWORD units = GetFullPathNameW(text.c_str(), 0, nullptr, nullptr);
  if (units < MAX_PATH || text.compare(0, 4, L"\\\\?\\") == 0 ||
      text.compare(0, 4, L"\\\\.\\") == 0)
    return text;
  std::wstring whole(units, L'\0');
  const DWORD written = GetFullPathNameW(text.c_str(), units, whole.data(), nullptr);
  if (written == 0 || written >= units) return {};
  whole.resize(written);
  if (whole.compare(0, 2, L"\\\\") == 0) return L"\\\\?\\UNC\\" + whole.substr(2);
  return L"\\\\?\\" + whole;
}

HANDLE handle_of(File file) { return reinterpret_cast<HANDLE>(file); }

uintptr_t page_bytes() {
  static const uintptr_t bytes = [] {
    SYSTEM_INFO info;
    GetSystemInfo(&info);
    return static_cast<uintptr_t>(info.dwPageSize);
  }();
  return bytes;
}

struct Pages {
  void* first;
  size_t bytes;
};

Pages whole_pages_within(const uint8_t* data, size_t bytes) {
  const uintptr_t page = page_bytes();
  const auto address = reinterpret_cast<uintptr_t>(data);
  const uintptr_t first = (address + page - 1) / page * page;
  const uintptr_t last = (address + bytes) / page * page;
  return {reinterpret_cast<void*>(first), first < last ? last - first : 0};
}

}  // namespace

std::string error_text() {
  const DWORD error = GetLastError();
  wchar_t text[512];
  DWORD units = FormatMessageW(FORMAT_MESSAGE_FROM_SYSTEM | FORMAT_MESSAGE_IGNORE_INSERTS, nullptr,
                               error, 0, text, static_cast<DWORD>(std::size(text)), nullptr);
  while (units > 0 && std::wcschr(L".\r\n ", text[units - 1]) != nullptr) --units;
  return units == 0 ? "error " + std::to_string(error) : narrow(text, units);
}

int64_t process_id() { return GetCurrentProcessId(); }

File open_to_read(const std::string& path) {
  const std::wstring name = wide_path(path);
  if (name.empty()) return kNoFile;
  const HANDLE file = CreateFileW(name.c_str(), GENERIC_READ,
                                  FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, nullptr,
                                  OPEN_EXISTING, FILE_ATTRIBUTE_NORMAL, nullptr);
  static_assert(sizeof(File) == sizeof(HANDLE));
  return file == INVALID_HANDLE_VALUE ? kNoFile : reinterpret_cast<File>(file);
}

std::optional<FileState> file_state(File file) {
  BY_HANDLE_FILE_INFORMATION info;
  if (GetFileType(handle_of(file)) != FILE_TYPE_DISK ||
      !GetFileInformationByHandle(handle_of(file), &info) ||
      (info.dwFileAttributes & FILE_ATTRIBUTE_DIRECTORY) != 0)
    return std::nullopt;
  const auto joined = [](DWORD high, DWORD low) { return uint64_t{high} << 32 | low; };
  const uint64_t ticks =
      joined(info.ftLastWriteTime.dwHighDateTime, info.ftLastWriteTime.dwLowDateTime);
  // Ticks of 100 ns since 1601 would pass the range of int64_t as nanoseconds; since 1970 they fit.
  constexpr int64_t kTicksTo1970 = 116'444'736'000'000'000;
  return FileState{joined(info.nFileSizeHigh, info.nFileSizeLow),
                   (static_cast<int64_t>(ticks) - kTicksTo1970) * 100};
}

const uint8_t* map_file(File file, uint64_t) {
  const HANDLE section = CreateFileMappingW(handle_of(file), nullptr, PAGE_READONLY, 0, 0, nullptr);
  if (section == nullptr) return nullptr;
  const void* const data = MapViewOfFile(section, FILE_MAP_READ, 0, 0, 0);
  const DWORD error = GetLastError();
  CloseHandle(section);  // the view keeps it
  SetLastError(error);
  return static_cast<const uint8_t*>(data);
}

void unmap_file(const uint8_t* data, uint64_t) { UnmapViewOfFile(data); }

void close_file(File file) { CloseHandle(handle_of(file)); }

void release_file_pages(const uint8_t* data, size_t bytes) {
  const Pages pages = whole_pages_within(data, bytes);
  // Of pages that are not locked this takes them out of the working set.
  if (pages.bytes > 0) VirtualUnlock(pages.first, pages.bytes);
}

void repair_failed_reads(RepairRead) {}

bool replace_by_zeros(uintptr_t, uintptr_t) { return false; }

uint8_t* allocate_pages(size_t bytes) {
  return static_cast<uint8_t*>(
      VirtualAlloc(nullptr, bytes, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE));
}

uint8_t* allocate_zeros(size_t bytes) {
  return static_cast<uint8_t*>(
      VirtualAlloc(nullptr, bytes, MEM_RESERVE | MEM_COMMIT, PAGE_READONLY));
}

uint8_t* reserve_pages(size_t bytes) {
  return static_cast<uint8_t*>(VirtualAlloc(nullptr, bytes, MEM_RESERVE, PAGE_READWRITE));
}

bool commit(uint8_t* data, size_t bytes) {
  return VirtualAlloc(data, bytes, MEM_COMMIT, PAGE_READWRITE) != nullptr;
}

void decommit(uint8_t* data, size_t bytes) { VirtualFree(data, bytes, MEM_DECOMMIT); }

void discard_pages(uint8_t* data, size_t bytes) {
  const Pages pages = whole_pages_within(data, bytes);
  if (pages.bytes == 0) return;
  VirtualAlloc(pages.first, pages.bytes, MEM_RESET, PAGE_READWRITE);
  VirtualUnlock(pages.first, pages.bytes);  // at once, and not only when memory is short
}

void free_pages(uint8_t* data, size_t) { VirtualFree(data, 0, MEM_RELEASE); }

// They take a privilege that users don't have.
void prefer_huge_pages(uint8_t*, size_t) {}

const char* const kCudaDriverLibrary = "nvcuda.dll";
const char* const kOpenClLibrary = "OpenCL.dll";

void* open_library(const std::string& path, std::string* reason) {
  const std::wstring name = wide(path);
  HMODULE library = nullptr;
  if (name.empty())
    SetLastError(ERROR_INVALID_NAME);
  else
    library = LoadLibraryW(name.c_str());
  if (library == nullptr) *reason = error_text();
  return reinterpret_cast<void*>(library);
}

void* find_symbol(void* library, const char* name) {
  return reinterpret_cast<void*>(GetProcAddress(static_cast<HMODULE>(library), name));
}

bool arm_has_dot_products() {
  constexpr DWORD kDotProducts = 43;  // PF_ARM_V82_DP_INSTRUCTIONS_AVAILABLE
  return IsProcessorFeaturePresent(kDotProducts) != 0;
}

}  // namespace oxibonsai::os
