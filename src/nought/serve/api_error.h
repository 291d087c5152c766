// ApiError: a refusal in the form of OpenAI's API.
#pragma once

#include <string>
#include <utility>

#include "nought/base/error.h"

namespace nought {

class ApiError : public Error {
 public:
  ApiError(int status, const std::string& message, std::string param = {}, std::string code = {})
      : Error(message), status_(status), param_(std::move(param)), code_(std::move(code)) {}
  int status() const { return status_; }
  /// {"error": {"message", "type", "param", "code"}}.
  std::string body() const;

 private:
  int status_;
  std::string param_, code_;  // "": null
};

/// The body of an error that no request has caused.
std::string error_body(int status, const std::string& message);

}  // namespace nought
