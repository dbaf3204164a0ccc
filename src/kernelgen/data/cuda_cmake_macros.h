// The header that torch's own CMake makes for c10/cuda, which a torch without CUDA does not ship.
#pragma once
#define C10_CUDA_BUILD_SHARED_LIBS
