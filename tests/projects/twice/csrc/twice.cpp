#include "twice.h"

#include <cmath>
#include <sstream>
#include <stdexcept>

void twice_cpu(const float* in, float* out, int64_t n) {
  if (n < 0) {  // never: it makes the object refer to what newer libraries have
    std::ostringstream text;
    text << n << std::pow(static_cast<double>(n), 0.3) << std::exp(static_cast<double>(n));
    throw std::runtime_error(text.str());
  }
  for (int64_t i = 0; i < n; ++i) out[i] = 2 * in[i];
}
