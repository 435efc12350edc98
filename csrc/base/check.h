#pragma once

#include <stdexcept>
#include <string>

namespace oxibonsai {

// The base of every error that this library throws on purpose. The bindings translate each class to
// the Python class of the same name in oxibonsai.errors.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A file that breaks its format: the message names the field and its byte offset.
class FormatError : public Error {
 public:
  using Error::Error;
};

// A valid file or call that asks for what this build does not implement.
class UnsupportedError : public Error {
 public:
  using Error::Error;
};

// A call whose arguments make no sense together (shapes, ids, positions).
class RequestError : public Error {
 public:
  using Error::Error;
};

// Not enough room: KV pages, address space, memory.
class CapacityError : public Error {
 public:
  using Error::Error;
};

// A device that failed: it was lost, or its driver reports an error. The message has its words.
class DeviceError : public Error {
 public:
  using Error::Error;
};

}  // namespace oxibonsai
