// Tables as CSV (RFC 4180).
#pragma once

#include <string>
#include <vector>

namespace mhla::io {

std::string encode_csv(const std::vector<std::string>& header, const std::vector<std::vector<std::string>>& rows);

}  // namespace mhla::io
